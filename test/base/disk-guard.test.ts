/** The two marks on free space: what stops at each, and that it recovers by itself. */
import { mkdirSync, rmdirSync, statfsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { createDiskGuard, type DiskGuard, type DiskGuardOptions } from '../../src/base/disk-guard.ts'
import { createLogger } from '../../src/base/logger.ts'
import { manualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

const SECOND = 1_000
/** More than any disk has. */
const TOO_MUCH = Number.MAX_SAFE_INTEGER

function guardOf(
  t: { teardown(clean: () => void): void },
  options: Partial<DiskGuardOptions> & Pick<DiskGuardOptions, 'folder'>,
) {
  const clock = manualClock()
  const lines: Record<string, unknown>[] = []
  const logger = createLogger({ level: 'info', write: (line) => void lines.push(JSON.parse(line)) })
  let resumed = 0
  const guard: DiskGuard = createDiskGuard({
    clock,
    logger,
    storeProblem: () => null,
    minFreeAccept: 0,
    minFreeDeliver: 0,
    ...options,
  })
  t.teardown(() => guard.stop())
  const start = (): Promise<void> => guard.start(() => void (resumed += 1))
  return { guard: { ...guard, start }, clock, lines, resumed: () => resumed }
}

t.test('with space above both marks everything goes on', async (t) => {
  const folder = t.testdir({})
  const { guard, lines } = guardOf(t, { folder, minFreeAccept: 1, minFreeDeliver: 1 })
  await guard.start()
  t.same([guard.acceptProblem() === null, guard.mayDeliver(), lines], [true, true, []])
  const { bavail, bsize } = statfsSync(folder)
  const ratio = guard.freeBytes() / (bavail * bsize)
  t.ok(ratio > 0.5 && ratio < 2, 'what is free is what the disk says')
})

t.test('below the upper mark nothing new is accepted, and deliveries go on', async (t) => {
  const { guard, lines } = guardOf(t, { folder: t.testdir({}), minFreeAccept: TOO_MUCH })
  await guard.start()
  t.same([guard.acceptProblem() === null, guard.mayDeliver()], [false, true])
  t.match(lines, [
    { level: 'warn', msg: /^the disk runs low/ },
    { level: 'error', mark_bytes: TOO_MUCH, msg: /^accepting new mail stopped/ },
  ])
  t.equal(lines.length, 2)
})

t.test('below the lower mark no delivery starts either', async (t) => {
  const { guard, lines, resumed } = guardOf(t, {
    folder: t.testdir({}),
    minFreeAccept: TOO_MUCH,
    minFreeDeliver: TOO_MUCH,
  })
  await guard.start()
  t.same([guard.acceptProblem() === null, guard.mayDeliver()], [false, false])
  t.equal(lines.length, 3)
  t.equal(resumed(), 0)
})

t.test('below twice the upper mark it is short, which is told once; a tenth above it that is over', async (t) => {
  const folder = t.testdir({})
  const { bavail, bsize } = statfsSync(folder)
  let shortened = 0
  const { guard, clock, lines } = guardOf(t, {
    folder,
    minFreeAccept: (bavail * bsize) / 1.5,
    onShort: () => void (shortened += 1),
  })
  await guard.start()
  await clock.advance(SECOND)
  t.same([guard.isShort(), guard.acceptProblem() === null, shortened], [true, true, 1])
  t.match(lines, [{ level: 'warn', msg: /^the disk runs low/ }])
  t.equal(lines.length, 1)

  const wide = guardOf(t, { folder, minFreeAccept: (bavail * bsize) / 4 })
  await wide.guard.start()
  t.same([wide.guard.isShort(), wide.lines], [false, []])
})

t.test('a disk that cannot be asked counts as full, is told once, and recovers', async (t) => {
  const folder = join(t.testdir({}), 'disk')
  const { guard, clock, lines, resumed } = guardOf(t, { folder, minFreeAccept: 1, minFreeDeliver: 1 })
  await guard.start()
  t.same([guard.acceptProblem() === null, guard.mayDeliver(), guard.freeBytes()], [false, false, 0])
  await clock.advance(SECOND)
  await clock.advance(SECOND)
  t.equal(lines.filter(({ msg }) => msg === 'the free space is not known').length, 1)
  mkdirSync(folder)
  await until('it delivers again', async () => {
    await clock.advance(SECOND)
    return guard.mayDeliver()
  })
  t.same([guard.acceptProblem() === null, resumed()], [true, 1])
  rmdirSync(folder)
  await until('it is gone again', async () => {
    await clock.advance(SECOND)
    return !guard.mayDeliver()
  })
  t.equal(resumed(), 1)
})

t.test('after a stop nobody looks any more', async (t) => {
  const folder = t.testdir({})
  const { guard, clock } = guardOf(t, { folder, minFreeDeliver: 1 })
  await guard.start()
  guard.stop()
  rmdirSync(folder)
  for (let look = 0; look < 5; look += 1) await clock.advance(SECOND)
  t.ok(guard.mayDeliver())
})
