/**
 * The log: one line per fact whatever is in it, nothing secret, priorities for the journal, a level that can change.
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, fstatSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { createLogLevelKeeper } from '../../src/operations/log-level.ts'
import { HOUR, MINUTE } from '../../src/base/clock.ts'
import { createAdjustableLogger, createLogger, isJournal, problemText } from '../../src/base/logger.ts'
import { createLiveConfiguration } from '../../src/config/live-configuration.ts'
import type { Configuration } from '../../src/config/load-configuration.ts'
import { manualClock } from '../support/manual-clock.ts'
import { MIB, mountSmallDisk } from '../support/small-disk.ts'
import { until } from '../support/until.ts'

const LOGGER = fileURLToPath(new URL('../../src/base/logger.ts', import.meta.url))
const CANARY = 'canary-4d1f'

function collecting() {
  const lines: string[] = []
  return { lines, ...createAdjustableLogger({ level: 'info', write: (line) => void lines.push(line) }) }
}

t.test('one fact is one line of printable characters', async (t) => {
  const { lines, logger } = collecting()
  const hostile = `250 a\r\n{"level":"error"}\u0000\u001b[2J\u007f\u0085\u009b2J\u2028\u2029\u202e\u2066\u200f\u061c ü`
  logger.info({ reply: hostile }, 'message delivered')
  t.equal(lines.length, 1)
  t.match(lines[0], /^[\x20-\x7e\u00fc]*\n$/)
  t.equal(JSON.parse(lines[0] ?? '').reply, hostile, 'and nothing of it is lost')
})

t.test('what has the name of a secret is not written, at whatever depth', async (t) => {
  const { lines, logger } = collecting()
  const error = Object.assign(new Error('failed', { cause: new Error('below') }), {
    code: 'EFAIL',
    headers: { authorization: CANARY },
    body: CANARY,
  })
  const itsOwnCause = new Error('around')
  itsOwnCause.cause = itsOwnCause
  const facts = [
    { key: CANARY, token: CANARY, secret: CANARY, password: CANARY, private_key: CANARY, Authorization: CANARY },
    { filter: { variables: { name: CANARY } }, list: [{ html: CANARY }, { inner: { text: CANARY } }] },
    { headers: { authorization: CANARY, cookie: CANARY } },
    { a: { b: { c: { d: { e: { f: CANARY } } } } } },
    { err: error },
    { err: { anything: CANARY } },
    { headers: Object.assign(Object.create(null), { token: CANARY }) },
    { err: itsOwnCause },
  ]
  for (const fact of facts) logger.warn(fact, 'canary')
  logger.child({ part: 'test' }).warn({ apiKey: CANARY, domain: 'acme.com' }, 'canary')
  t.equal(lines.length, facts.length + 1)
  t.notMatch(lines.join(''), CANARY)
  t.match(JSON.parse(lines[4] ?? ''), {
    err: { type: 'Error', message: 'failed', code: 'EFAIL', cause: { message: 'below' } },
  })
  t.match(JSON.parse(lines.at(-1) ?? ''), { part: 'test', domain: 'acme.com', apiKey: '[redacted]' })
})

t.test('a line has level, time, the fields of its child, its own and the message, whatever they are', async (t) => {
  const { lines, logger } = collecting()
  const child = logger.child({ part: 'http' }).child({ inner: { deep: true } })
  const circle: Record<string, unknown> = { name: 'round' }
  circle['itself'] = circle
  child.info({ a: 1, b: undefined, c: null, d: '"', e: [NaN], f: () => 1, g: new Date(0) }, 'plain')
  child.info({}, 'no fields')
  child.info('only a phrase')
  child.info({ only: 'fields' })
  child.info({ circle, before: 1 }, 'circle')
  child.info({ big: 1n, before: 1, token: CANARY }, 'big')
  child.info(
    {
      hostile: {
        toJSON: () => {
          throw new Error('no')
        },
      },
      before: 1,
    },
    'hostile',
  )
  const whole = /^\{"level":"info","time":"[^"]{24}","part":"http","inner":\{"deep":true\}.*\}\n$/
  for (const line of lines) t.match(line, whole)
  const written = lines.map((line) => {
    const { level: _level, time: _time, part: _part, inner: _inner, ...rest } = JSON.parse(line)
    return rest
  })
  t.same(written.slice(0, 4), [
    { a: 1, c: null, d: '"', e: [null], g: '1970-01-01T00:00:00.000Z', msg: 'plain' },
    { msg: 'no fields' },
    { msg: 'only a phrase' },
    { only: 'fields' },
  ])
  for (const [index, msg] of ['circle', 'big', 'hostile'].entries()) t.match(written[4 + index], { before: 1, msg })
  t.notMatch(lines.join(''), CANARY)
})

t.test('lines come in their order and whole, few or many, short or longer than what is gathered', async (t) => {
  const program = `import { createLogger } from ${JSON.stringify(LOGGER)}
    const logger = createLogger({ level: 'info' })
    for (let n = 0; n < 300; n++) logger.info({ n, text_of: 'ü€'.repeat(n % 100 === 99 ? 40_000 : n) }, 'line')`
  const { status, stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], { maxBuffer: 1e8 })
  t.equal(status, 0)
  const lines = stdout
    .toString('utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
  t.same(
    lines.map(({ n }) => n),
    Array.from({ length: 300 }, (_, n) => n),
  )
  t.ok(lines.every(({ n, text_of: text }) => text === 'ü€'.repeat(n % 100 === 99 ? 40_000 : n)))
})

t.test('the level can change while children are in use', async (t) => {
  const { lines, logger, setLevel } = collecting()
  const child = logger.child({ part: 'a' }).child({ inner: 1 })
  child.debug({}, 'unseen')
  setLevel('debug')
  child.debug({}, 'seen')
  setLevel('error')
  child.warn({}, 'unseen')
  logger.warn({}, 'unseen')
  t.same(
    lines.map((line) => JSON.parse(line).msg),
    ['seen'],
  )
})

t.test('priorities are for the journal alone, and not for a child whose output goes elsewhere', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-log-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const program = `import { createLogger } from ${JSON.stringify(LOGGER)}
    const logger = createLogger({ level: 'debug' })
    for (const level of ['debug', 'info', 'warn', 'error']) logger[level]({}, level)`
  const written = (name: string, journalOf: (place: { dev: bigint; ino: bigint }) => string): string[] => {
    const file = openSync(join(folder, name), 'w')
    const env = { ...process.env, JOURNAL_STREAM: journalOf(fstatSync(file, { bigint: true })) }
    const args = ['--input-type=module', '-e', program]
    const { status } = spawnSync(process.execPath, args, { env, stdio: ['ignore', file, 2] })
    closeSync(file)
    t.equal(status, 0)
    return readFileSync(join(folder, name), 'utf8')
      .trim()
      .split('\n')
      .map((line) => line.slice(0, 4))
  }
  t.same(
    written('journal', ({ dev, ino }) => `${dev}:${ino}`),
    ['<7>{', '<6>{', '<4>{', '<3>{'],
  )
  t.same(
    written('elsewhere', () => '9:1'),
    ['{"le', '{"le', '{"le', '{"le'],
  )
  t.equal(isJournal(undefined, 1), false)
  t.equal(isJournal('1:1', 9_999), false, 'a closed descriptor')
  t.ok(createLogger({ level: 'silent' }))
})

t.test('what ends a process is an error in the journal, line by line', async (t) => {
  t.equal(problemText('sternpost: gone\n\n    at x\n', true), '<3>sternpost: gone\n\n<3>    at x\n')
  t.equal(problemText('sternpost: gone\n', false), 'sternpost: gone\n')
})

t.test('a level for a while ends with the time, or with a reload that changes the configured one', async (t) => {
  const clock = manualClock()
  const { logger, lines } = collecting()
  const levels: string[] = []
  const configured = (level: 'info' | 'warn'): Configuration => ({ server: { log: { level } } }) as Configuration
  const live = createLiveConfiguration(configured('info'))
  const keeper = createLogLevelKeeper({ setLevel: (level) => void levels.push(level), live, clock, logger })
  t.same(keeper.raise('debug', 10 * MINUTE), { level: 'debug', until: clock.now() + 10 * MINUTE })
  await clock.advance(9 * MINUTE)
  t.match(keeper.raise('error', 10 * MINUTE), { level: 'info' }, 'nobody can hide what is configured')
  await clock.advance(9 * MINUTE)
  t.same(levels, ['debug', 'info'], 'the first one does not end the second')
  await clock.advance(MINUTE)
  t.same(levels.splice(0), ['debug', 'info', 'info'])
  keeper.raise('debug', MINUTE)
  await live.replace(configured('info'))
  t.same(levels.splice(0), ['debug'], 'another change does not end it')
  await live.replace(configured('warn'))
  await clock.advance(HOUR)
  t.same(levels, ['warn'])
  t.equal(lines.length, 4, 'each is told')
})

t.test(
  'lines that do not fit on the disk of a log file are dropped and counted, and later ones are written',
  async (t) => {
    const disk = mountSmallDisk(2 * MIB)
    if (disk === undefined) return void t.pass('left out', { skip: 'a small disk cannot be mounted here' })
    t.teardown(() => disk.remove())
    const program = `import { createLogger, linesToFile } from ${JSON.stringify(LOGGER)}
    import { appendFileSync } from 'node:fs'
    const output = createLogger({ level: 'info' })
    const file = createLogger({ level: 'info', write: linesToFile(process.argv[1]) })
    process.on('message', ({ count, msg }) => {
      for (let n = 0; n < count; n++) for (const logger of [output, file]) logger.info({ pad: 'x'.repeat(500) }, msg)
      // Behind the moment for which lines are gathered.
      setTimeout(() => process.send('written'), 100)
    })`
    const [viaOutput, viaPath] = [join(disk.folder, 'output'), join(disk.folder, 'path')]
    const output = openSync(viaOutput, 'a')
    const args = ['--input-type=module', '-e', program, viaPath]
    const child = spawn(process.execPath, args, { stdio: ['ignore', output, 'inherit', 'ipc'] })
    closeSync(output)
    t.teardown(() => child.kill())
    const ended = once(child, 'exit')
    const log = async (count: number, msg: string): Promise<void> => {
      child.send({ count, msg })
      const first = await Promise.race([once(child, 'message'), ended])
      t.same(first, ['written', undefined], 'it goes on')
    }
    await log(1, 'before')
    disk.fill(0)
    await log(20, 'dropped')
    await log(20, 'dropped')
    disk.free()
    await log(2, 'after')
    child.disconnect()
    t.same(await ended, [0, null])
    for (const file of [viaOutput, viaPath]) {
      const lines = readFileSync(file, 'utf8').trimEnd().split('\n')
      const written = lines.flatMap((line) => (line.endsWith('}') ? [JSON.parse(line)] : []))
      const kept = written.filter(({ msg }) => msg === 'dropped').length
      const told = written.find(({ lines: count }) => count !== undefined)
      t.match(told, { level: 'warn', lines: 40 - kept, msg: 'the disk of the log was full: lines were dropped' })
      t.ok(lines.length - written.length <= 1, 'of one line at most a part is there')
      t.same([written[0]?.msg, ...written.slice(-2).map(({ msg }) => msg)], ['before', 'after', 'after'])
    }
  },
)

t.test('lines that nobody reads wait up to a bound, then they are dropped and counted', async (t) => {
  const program = `import { createLogger } from ${JSON.stringify(LOGGER)}
    const logger = createLogger({ level: 'info' })
    process.on('message', ({ count, msg }) => {
      for (let n = 0; n < count; n++) logger.info({ pad: 'x'.repeat(60_000) }, msg)
      setTimeout(() => process.send(process.stdout.writableLength), 100)
    })`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  t.teardown(() => child.kill())
  const log = async (count: number, msg: string): Promise<number> => {
    child.send({ count, msg })
    return Number((await once(child, 'message'))[0])
  }
  const waiting = await log(600, 'unread')
  t.ok(waiting < 20 * MIB, `${waiting} bytes wait`)
  let text = ''
  child.stdout?.on('data', (bytes: Buffer) => (text += bytes.toString()))
  await until('what waited is read', async () => (await log(0, '')) === 0)
  await log(1, 'after')
  await until('the last line is read', () => text.endsWith('"after"}\n'))
  const lines = text.trimEnd().split('\n')
  const read = lines.map((line) => JSON.parse(line))
  const kept = read.filter(({ msg }) => msg === 'unread').length
  t.ok(kept > 200, `${kept} were kept`)
  const told = { level: 'warn', lines: 600 - kept, msg: 'nobody read the log for a while: lines were dropped' }
  t.match(read.slice(kept), [told, { msg: 'after' }], 'in their order')
})
