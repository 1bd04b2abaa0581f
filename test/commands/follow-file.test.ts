/**
 * `sternpost logs --follow --file`, by the program itself: the file is renamed and made anew, emptied, gone for a
 * while. No line is lost, and none is told twice.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdtempSync, renameSync, rmSync, truncateSync, unlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { until } from '../support/until.ts'
import { sternpost } from './command-server.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'sternpost-follow-'))
t.teardown(() => rmSync(folder, { recursive: true }))

function lineOf(text: string): string {
  return `${JSON.stringify({ level: 'info', time: '2026-11-21T12:00:00.000Z', part: 'delivery', msg: text })}\n`
}

/** What it has printed so far, each `msg` alone; and its end by Ctrl-C. */
function follow(t: Test, file: string): { shown: () => string[]; interrupt: () => Promise<number | null> } {
  const words = [COMMAND, 'logs', '--follow', '--file', file, '--json']
  const child = spawn('sh', words, { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => void child.kill('SIGKILL'))
  let printed = ''
  child.stdout.on('data', (piece: Buffer) => (printed += piece.toString()))
  return {
    shown: () =>
      printed
        .split('\n')
        .slice(0, -1)
        .map((line) => (JSON.parse(line) as { msg: string }).msg),
    async interrupt() {
      const ended = once(child, 'exit')
      child.kill('SIGINT')
      return (await ended)[0] as number | null
    },
  }
}

t.test('a file that is rotated is gone on with, and no line is lost', async (t) => {
  const file = join(folder, 'sternpost.log')
  const moved = join(folder, 'sternpost.log.1')
  writeFileSync(file, lineOf('before'))
  const following = follow(t, file)
  const isShown = (text: string): Promise<unknown> => until(`${text} is shown`, () => following.shown().includes(text))
  await isShown('before')

  // As logrotate does: who writes hears of the new file a while after it was made.
  renameSync(file, moved)
  appendFileSync(moved, lineOf('in the renamed file, where there is no other'))
  await isShown('in the renamed file, where there is no other')
  writeFileSync(file, '')
  appendFileSync(moved, lineOf('in the renamed file, beside an empty one'))
  await isShown('in the renamed file, beside an empty one')
  appendFileSync(moved, lineOf('the last of the renamed file') + lineOf('cut Ä').trimEnd())
  appendFileSync(file, lineOf('the first of the new file'))
  await isShown('the first of the new file')

  // As copytruncate does.
  truncateSync(file)
  appendFileSync(file, lineOf('emptied'))
  await isShown('emptied')

  unlinkSync(file)
  writeFileSync(file, lineOf('made anew'))
  await isShown('made anew')
  appendFileSync(moved, lineOf('of no interest any more'))
  appendFileSync(file, lineOf('the last'))
  await isShown('the last')
  t.equal(await following.interrupt(), 0)
  t.same(following.shown(), [
    'before',
    'in the renamed file, where there is no other',
    'in the renamed file, beside an empty one',
    'the last of the renamed file',
    'cut Ä',
    'the first of the new file',
    'emptied',
    'made anew',
    'the last',
  ])
})

t.test('a file that is not there at the beginning is a mistake', async (t) => {
  const gone = await sternpost(['logs', '--follow', '--file', join(folder, 'gone')])
  t.equal(gone.code, 74)
  t.match(gone.stderr, /gone/)
})
