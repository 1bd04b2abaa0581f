/**
 * `sternpost logs`: lines by level and message, from a file and from standard input; a level for a while; what is
 * missing is said.
 */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { shownLine } from '../../src/commands/server/logs.ts'
import { commandServer, sternpost } from './command-server.ts'

const ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'
const LINES = [
  { level: 'debug', time: '2026-11-21T12:00:00.000Z', part: 'delivery', message_id: ID, msg: 'message waits' },
  { level: 'info', time: '2026-11-21T12:00:01.000Z', part: 'messages', message_id: ID, msg: 'message accepted' },
  {
    level: 'info',
    time: '2026-11-21T12:00:02.000Z',
    part: 'messages',
    message_id: 'msg_other',
    msg: 'message accepted',
  },
  {
    level: 'warn',
    time: '2026-11-21T12:00:03.000Z',
    part: 'delivery',
    message_ids: [ID],
    reply: '451 4.3.0 "x=y" \u009b2J',
    rule: null,
    attempt: 2,
    msg: 'message deferred',
  },
]
const folder = mkdtempSync(join(tmpdir(), 'sternpost-logs-'))
t.teardown(() => rmSync(folder, { recursive: true }))
const file = join(folder, 'sternpost.log')
writeFileSync(file, [...LINES.map((line) => `<6>${JSON.stringify(line)}`), 'Started sternpost.service.', ''].join('\n'))

t.test('lines of a file, by level and by message', async (t) => {
  const shown = async (...words: string[]): Promise<string[]> => {
    const { code, stdout } = await sternpost(['logs', '--file', file, ...words])
    t.equal(code, 0)
    return stdout.split('\n').slice(0, -1)
  }
  t.same(await shown('--message', ID), [
    `2026-11-21T12:00:01.000Z info  messages   message accepted  message_id=${ID}`,
    `2026-11-21T12:00:03.000Z warn  delivery   message deferred  message_ids="[\\"${ID}\\"]"  ` +
      'reply="451 4.3.0 \\"x=y\\" \\u009b2J"  attempt=2',
  ])
  t.equal((await shown('--level', 'debug')).length, 5)
  t.equal((await shown()).length, 4)
  t.equal((await shown('--level', 'error')).length, 0)
  const json = await shown('--level', 'warn', '--json')
  t.strictSame(
    json.map((line) => JSON.parse(line)),
    [LINES[3]],
    'as they were written, and ours alone',
  )
})

t.test('what is missing is said', async (t) => {
  const gone = await sternpost(['logs', '--file', join(folder, 'gone')])
  t.equal(gone.code, 74)
  t.match(gone.stderr, /gone/)
  const alone = await sternpost(['logs', '--for', '10m', '--file', file])
  t.equal(alone.code, 64)
  t.match(alone.stderr, 'add --level debug')
  if (existsSync('/run/systemd/system')) return t.comment('systemd runs here: there is a journal')
  const none = await sternpost(['logs'])
  t.equal(none.code, 69)
  t.match(none.stderr, /systemd does not run here, so there is no journal\. Fix: .*--file/)
})

t.test('the server logs at another level for a while', async (t) => {
  const { run, api } = await commandServer(t)
  const { code, stderr } = await run('logs', '--level', 'debug', '--for', '10m', '--file', file)
  t.equal(code, 0)
  t.match(stderr, /The server logs at level debug until /)
  t.ok(api.port > 0)
  t.equal((await run('logs', '--level', 'debug', '--for', '2d', '--file', file)).code, 1, 'a day at most')
})

t.test('a line that is none of ours is shown where everything is', async (t) => {
  const all = { level: 'info', identifier: null } as const
  t.equal(shownLine('Stopped \u001b[2Jx', all, false), 'Stopped \\u001b[2Jx')
  t.equal(shownLine('Stopped', all, true), null)
  t.equal(shownLine('{"a":1}', { ...all, identifier: 'x' }, false), null)
  t.equal(shownLine('', all, false), null)
})
