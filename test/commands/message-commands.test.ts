/**
 * `sternpost send`, `message …`, `queue explain` and `status` against the real interface; nothing is delivered here.
 */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { toUnixSeconds } from '../../src/base/clock.ts'
import { keyNamed, sendOne, shareStore } from '../http/api-server.ts'
import { commandServer, sternpost } from './command-server.ts'

shareStore(t)

const TO = ['--to', 'ada@example.net', '--from', 'orders@acme.com']

t.test('send posts what its flags say and prints the id', async (t) => {
  const { api, folder, run } = await commandServer(t)
  const plain = await run('send', ...TO)
  t.match(plain, { code: 0, stdout: /^msg_\w{26}\n$/, stderr: /sternpost message show msg_/ })
  t.match(api.seen.sends[0]?.request, {
    to: 'ada@example.net',
    from: 'orders@acme.com',
    subject: 'Test message',
    text: /test/,
  })
  const [html, receipt] = [join(folder, 'mail.html'), join(folder, 'receipt.txt')]
  writeFileSync(html, '<p>größe</p>')
  writeFileSync(receipt, 'Thank you.\n')
  const rest = ['--subject', 'Order', '--html-file', html, '--attach', receipt, '--attach', html, '--pool', 'default']
  const full = await run('send', ...TO, ...rest, '--json', '--quiet')
  t.equal(full.stderr, '')
  t.same(Object.keys(JSON.parse(full.stdout)), ['message_id', 'timestamp'])
  t.match(api.seen.sends[1]?.request, {
    subject: 'Order',
    html: '<p>größe</p>',
    ipPool: 'default',
    attachments: [{ name: 'receipt.txt', content: 'VGhhbmsgeW91Lgo=' }, { name: 'mail.html' }],
  })
  t.equal(api.seen.sends[1]?.request.text, undefined, 'the server makes the text part')

  await run('suppression', 'add', 'nobody@example.net')
  const suppressed = await run('send', '--to', 'nobody@example.net', '--from', 'orders@acme.com')
  t.match(suppressed, { code: 0, stdout: /^msg_\w+ {2}suppressed\n$/ })
  t.match(await run('send', ...TO.with(3, 'a@stranger.com')), { code: 1, stdout: '', stderr: /stranger\.com/ })
  t.match(await run('send', '--to', 'ada@example.net'), { code: 64 })
  const absent = await run('send', ...TO, '--attach', join(folder, 'none'))
  t.match(absent, { code: 74, stderr: /^sternpost: --attach: ENOENT/ })
  writeFileSync(receipt, Buffer.alloc(10 * 1024 * 1024 + 1))
  t.match(await run('send', ...TO, '--attach', receipt), { code: 64, stderr: /more than 10 MiB/ })
})

t.test('send --wait prints the timeline and ends with 75 when the time is over', async (t) => {
  const { run } = await commandServer(t)
  const waited = await run('send', ...TO, '--wait', '1ms')
  t.equal(waited.code, 75)
  t.match(waited.stdout, /^msg_\w+\n\d{4}-\d\d-\d\d \d\d:\d\d:\d\d {2}email\.accepted.*\nqueued\n$/)
  const document = JSON.parse((await run('send', ...TO, '--wait', '1ms', '--json')).stdout)
  t.match(document, { message_id: /^msg_/, timestamp: Number, state: 'queued', events: [{ event: 'email.accepted' }] })
  const suppressed = await run('send', '--to', 'nobody@example.net', '--from', 'orders@acme.com', '--wait', '1m')
  t.match(suppressed, { code: 1, stdout: /\nsuppressed\n$/ })
  t.match(await run('send', ...TO, '--wait', '10'), { code: 64, stdout: '', stderr: /--wait: .*not a duration/ })
})

t.test('list searches; show says all that is known', async (t) => {
  const { api, run } = await commandServer(t)
  const to = 'searched@example.net'
  const first = await sendOne(api.port, { to, subject: 'One', tags: { order: '7' } })
  const second = await sendOne(api.port, { to, from: 'b@other.com', subject: 'Two\u202e' })
  const list = (...words: string[]) => run('message', 'list', '--recipient', to, ...words)
  const { stdout } = await list()
  t.same(
    stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split('\t').slice(1)),
    [
      ['queued', to, 'b@other.com', 'Two\\u202e', second],
      ['queued', to, 'orders@acme.com', 'One', first],
    ],
  )
  const idsOf = async (...words: string[]): Promise<unknown[]> =>
    JSON.parse((await list(...words, '--json')).stdout).map(({ message_id: id }: { message_id: string }) => id)
  t.same(await idsOf('--domain', 'ACME.com'), [first])
  t.same(await idsOf('--from', 'b@other.com'), [second])
  t.same(await idsOf('--tag', 'order:7', '--state', 'queued', '--since', '2026-01-01'), [first])
  t.same(await idsOf('--until', '2026-01-01'), [])
  t.match(await list('--limit', '1'), { stdout: /Two/, stderr: /more than these 1/ })
  t.match(await list('--state', 'deferred'), { code: 0, stdout: '', stderr: 'No such message.\n' })
  t.match(await list('--state', 'lost'), { code: 64 })
  t.match(await list('--tag', 'x'), { code: 1, stderr: /tag: must be key:value/ })

  const shown = await run('message', 'show', first)
  t.ok(shown.stdout.startsWith(`${first}  queued\n`))
  t.match(shown.stdout, /\n {2}to +searched@example\.net\n {2}from +orders@acme\.com\n/)
  t.match(shown.stdout, /\n {2}tags +order:7\n/)
  t.match(shown.stdout, /\n\n {2}timeline\n {4}\d{4}-.* {2}email\.accepted/)
  t.notMatch(shown.stdout, 'attempts')
  t.match(JSON.parse((await run('message', 'show', first, '--json', '--transcript')).stdout), {
    message_id: first,
    attempts: [],
    events: [{ event: 'email.accepted' }],
    transcript: [],
  })
  t.match(await run('message', 'show', '../keys'), { code: 1, stdout: '', stderr: /^sternpost: Not found\. message / })
})

t.test('cancel, retry and explain', async (t) => {
  const { api, run } = await commandServer(t)
  const id = await sendOne(api.port)
  const explained = await run('queue', 'explain', id)
  t.equal(explained.code, 0)
  t.match(explained.stdout, new RegExp(`^${id} {2}queued\n {2}why +\\w.*\\.\n`))
  t.match(explained.stdout, /\n {2}advice +Nothing to do\.\n/)
  t.match(explained.stdout, /\n\n {2}checks\n {4}\w+ +\w+/)
  t.match(JSON.parse((await run('queue', 'explain', id, '--json')).stdout), { message_id: id, advice: [String] })
  t.match(await run('message', 'retry', id), { code: 1, stderr: /conflicts/ })
  t.match(await run('message', 'cancel', id), { code: 0, stdout: `${id} is canceled\n`, stderr: '' })
  t.same(JSON.parse((await run('message', 'cancel', id, '--json')).stdout), { message_id: id, state: 'canceled' })
})

t.test('status is one screen, and leaves out what the key may not ask', async (t) => {
  const { api, folder, run } = await commandServer(t)
  const { code, stdout } = await run('status')
  t.equal(code, 0)
  t.ok(stdout.startsWith(`${folder}/admin.sock  ok\n  version     `), stdout)
  t.match(stdout, /\n {2}queue {7}12 waiting, the oldest due one for 3 s\n/)
  t.match(stdout, /\n {2}domains {5}2 verified\n {2}webhooks {4}0 enabled, 0 disabled; 0 deliveries waiting, 0 dead/)
  t.match(stdout, /\n {2}127\.0\.0\.14 {2}cold in cold\n/)
  const document = JSON.parse((await run('status', '--json')).stdout)
  t.ok(Math.abs(document.at - toUnixSeconds(Date.now())) < 60, 'Unix seconds')
  t.match(document, {
    health: { status: 'ok', queue_depth: 12, oldest_due_seconds: 3, db: 'ok', mail_in: 'ok', smtp_out: 'ok' },
    domains: { verified: 2 },
    webhooks: { enabled: 0, dead_letters: 0 },
  })
  const elsewhere = ['--url', `http://127.0.0.1:${api.port}`, '--api-key', keyNamed('read')]
  const narrow = await sternpost(['status', ...elsewhere, '--json'])
  t.match([narrow.code, JSON.parse(narrow.stdout)], [0, { domains: null, webhooks: null }])
  t.match(await sternpost([], { STERNPOST_CONFIG: folder }), { code: 0, stdout: /admin\.sock {2}ok\n/ })
  const alone = await sternpost([], { STERNPOST_CONFIG: '/nonexistent' })
  t.match(alone, { code: 0, stdout: /first steps:\n {2}1 {2}sternpost sandbox/ })
  const installed = t.testdir({ 'sternpost.yaml': 'version: 1\nlisten: { admin_socket: /nonexistent/admin.sock }\n' })
  const stopped = await sternpost([], { STERNPOST_CONFIG: installed })
  t.match(stopped, { code: 69, stdout: '', stderr: /no server answers at .* `systemctl start sternpost`/ })
  const status = { status: 'degraded' as const, mail_in: 'the queue is full', smtp_out: 'no path' }
  const health = { ...status, queue_depth: 1, oldest_due_seconds: 0, db: 'ok' }
  const ill = await commandServer(t, { features: { health: async () => health } })
  t.match(await ill.run('status'), {
    code: 1,
    stdout:
      /degraded\n {2}version .*\n {2}queue +1 waiting\n.*\n {2}mail in +the queue is full\n {2}SMTP out +no path\n/,
  })
})

t.test('a container is healthy while its server answers, degraded or not', async (t) => {
  const report = { queue_depth: 1, oldest_due_seconds: 0, db: 'ok', mail_in: 'ok', smtp_out: 'no path' }
  const stateOf = async (status: 'degraded' | 'unavailable'): Promise<number | null> => {
    const { folder, run } = await commandServer(t, { features: { health: async () => ({ status, ...report }) } })
    const { stdout, code } = await run('status', '--json')
    writeFileSync(join(folder, 'answer'), stdout)
    writeFileSync(join(folder, 'sternpost'), `#!/bin/sh\ncat ${join(folder, 'answer')}\nexit ${code}\n`, {
      mode: 0o755,
    })
    const env = { PATH: `${folder}:${process.env['PATH']}`, STERNPOST_ADMIN_SOCKET: join(folder, 'admin.sock') }
    return spawnSync('sh', ['scripts/image/is-healthy'], { env }).status
  }
  t.equal(await stateOf('degraded'), 0)
  t.equal(await stateOf('unavailable'), 1)
})
