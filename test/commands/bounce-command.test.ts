/**
 * `sternpost bounce` as an administrator runs it: `read` without server or configuration, many files in one call;
 * `unmatched` against a server.
 */
import { execFile } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { commandServer } from './command-server.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))
const FIXTURES = fileURLToPath(new URL('../fixtures/mail', import.meta.url))
const fixture = (name: string): string => join(FIXTURES, `${name}.eml`)

interface Ended {
  code: number | string | null | undefined
  stdout: string
  stderr: string
}

function sternpost(...words: string[]): Promise<Ended> {
  const environment = { ...process.env, STERNPOST_CONFIG: '/nonexistent' }
  return new Promise((resolve) => {
    execFile('sh', [COMMAND, ...words], { env: environment }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : error.code, stdout, stderr })
    })
  })
}

t.test('of a feedback report it says whether its recipient is suppressed', async (t) => {
  const report = readFileSync(fixture('complaint-not-spam'), 'utf8')
  for (const [type, fate] of Object.entries({ 'not-spam': 'not suppressed', 'opt-out': 'suppressed' })) {
    const file = join(t.testdir(), `${type}.eml`)
    writeFileSync(file, report.replace('not-spam', type))
    const { stdout } = await sternpost('bounce', 'read', file)
    t.equal(stdout, `${file}: other (feedback type ${type})\n  reader@example.org: ${fate}\n`)
    t.match((await sternpost('bounce', 'read', '--json', file)).stdout, `"suppress":${fate === 'suppressed'},`)
  }
})

t.test('--json prints a line for each file, in their order', async (t) => {
  const files = readdirSync(FIXTURES)
    .filter((name) => name.endsWith('.eml'))
    .map((name) => join(FIXTURES, name))
  const { code, stdout, stderr } = await sternpost('bounce', 'read', '--json', ...files)
  t.strictSame([code, stderr], [0, ''])
  const lines = stdout
    .trimEnd()
    .split('\n')
    .map((line): Record<string, unknown> => JSON.parse(line))
  t.strictSame(
    lines.map(({ file }) => file),
    files,
  )
  t.strictSame(
    lines.find(({ file }) => file === fixture('status-report')),
    {
      file: fixture('status-report'),
      kind: 'bounce',
      recipients: [
        {
          address: 'gone@example.org',
          action: 'failed',
          status: '5.1.1',
          bounce_type: 'hard',
          category: 'invalid_recipient',
          suppress: true,
          diagnostic: '550 5.1.1 <gone@example.org>: Recipient address rejected: User unknown',
        },
        {
          address: 'full@example.org',
          action: 'failed',
          status: '4.2.2',
          bounce_type: 'soft',
          category: 'mailbox_full',
          suppress: false,
          diagnostic: '452 4.2.2 Mailbox full',
        },
      ],
      feedback_type: null,
    },
  )
  t.strictSame(
    lines.find(({ file }) => file === fixture('complaint')),
    {
      file: fixture('complaint'),
      kind: 'complaint',
      recipients: [
        {
          address: 'reader@example.org',
          action: 'delivered',
          status: null,
          bounce_type: null,
          category: null,
          suppress: true,
          diagnostic: '',
        },
      ],
      feedback_type: 'abuse',
    },
  )
})

t.test('without --json it says what follows, in words', async (t) => {
  const files = ['status-report', 'prose-exim-delay', 'prose-nobody', 'complaint', 'newsletter'].map(fixture)
  const { code, stdout } = await sternpost('bounce', 'read', ...files)
  t.equal(code, 0)
  t.match(stdout, /status-report\.eml: bounce\n {2}gone@example\.org: failed, 5\.1\.1, hard .*, suppressed\n/)
  t.match(stdout, /slow@example\.org: delayed, no status, soft \(no_answer\), not suppressed/)
  t.match(stdout, /prose-nobody\.eml: bounce\n {2}names no recipient/)
  t.match(stdout, /complaint\.eml: complaint \(feedback type abuse\)\n {2}reader@example\.org: suppressed/)
  t.match(stdout, /newsletter\.eml: other\n/)
})

t.test('a file that cannot be read is told, and the others are read', async (t) => {
  const folder = t.testdir({})
  const hostile = join(folder, 'hostile.eml')
  writeFileSync(hostile, 'From: MAILER-DAEMON@x\nSubject: failure notice\n\n<a@example.org>:\n550 \u001b[31mno\n')
  const { code, stdout, stderr } = await sternpost('bounce', 'read', join(folder, 'none.eml'), folder, hostile)
  t.equal(code, 74)
  t.match(stderr, /none\.eml: ENOENT/)
  t.match(stderr, /is a folder, not a mail/)
  t.match(stdout, /a@example\.org: failed/)
  t.notOk(stdout.includes('\u001b'), 'nothing that a terminal would obey')
  t.equal((await sternpost('bounce', 'read')).code, 64, 'no file is misuse')
})

t.test('what names no message of ours can be looked at', async (t) => {
  const { api, run } = await commandServer(t)
  t.match(await run('bounce', 'unmatched'), { code: 0, stdout: '', stderr: 'There are none.\n' })
  const bytes = readFileSync(fixture('status-report'))
  for (const sender of ['', 'evil\u001b[31m@example.org']) {
    const report = { at: api.clock.now(), kind: 'bounce', sender, recipient: 'fbl@mail.acme.com' }
    await api.store.keepUnmatchedReport({ ...report, remoteAddress: '203.0.113.7', bytes: new Uint8Array(bytes) })
  }
  const listed = await run('bounce', 'unmatched')
  t.equal(listed.code, 0)
  t.match(listed.stdout, /\tbounce\t<>\tfbl@mail\.acme\.com\t203\.0\.113\.7\n$/, 'the older one comes last')
  t.notOk(listed.stdout.includes('\u001b'), 'nothing that a terminal would obey')
  const newest = await run('bounce', 'unmatched', '--limit', '1', '--json')
  t.match(newest.stderr, 'There are more than these 1')
  t.match(JSON.parse(newest.stdout), { length: 1, 0: { recipient: 'fbl@mail.acme.com', source: bytes.toString() } })
})
