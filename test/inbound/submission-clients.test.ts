/** The doors of submission as real programs use them. */
import { execFile, spawnSync } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createTransport } from 'nodemailer'
import t, { type Test } from 'tap'
import type { AcceptRequest } from '../../src/store/records/accept-records.ts'
import { missingPrograms, PYTHON } from '../support/programs.ts'
import { inboundParts, type InboundParts } from './inbound-parts.ts'

const PROGRAM_TIMEOUT = 30_000

const parts: InboundParts = await inboundParts(t)
const {
  ports: [starttls = 0, implicit = 0, plain = 0],
} = await parts.submission(['starttls', 'implicit', 'none'])
const key = await parts.key()

/** Resolves with what it printed; a program that fails is not an error here. */
function run(program: string, words: string[], input = ''): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    const child = execFile(program, words, { timeout: PROGRAM_TIMEOUT }, (error, stdout, stderr) =>
      resolve({ code: Number(error?.code ?? 0), output: stdout + stderr }),
    )
    child.stdin?.end(input)
  })
}

/** The one mail that was stored since the last call. */
function lastStored(): AcceptRequest & { raw: string } {
  const [request, ...others] = parts.stored.splice(0)
  if (request === undefined || others.length > 0) throw new Error(`${others.length} mails more than one`)
  return { ...request, raw: Buffer.from(request.content.raw ?? []).toString() }
}

const addressesOf = ({ messages }: AcceptRequest): string[] => messages.map(({ to }) => to.address)

t.test('nodemailer', async (t) => {
  const auth = { user: 'apikey', pass: key }
  const tls = { rejectUnauthorized: false, servername: 'mail.example.net' }
  const places = [
    { port: starttls, requireTLS: true, tls },
    { port: implicit, secure: true, tls },
    { port: plain, ignoreTLS: true },
  ]
  for (const place of places) {
    const transport = createTransport({ host: '127.0.0.1', auth, ...place })
    const mail = {
      from: '"Acme, Orders" <orders@acme.com>',
      to: 'Ada <ada@example.net>',
      cc: 'bob@example.org',
      bcc: 'carla@example.org',
      subject: 'Größe',
      text: 'Größe XL',
      html: '<p>Größe <b>XL</b></p>',
      headers: { 'X-Tags': 'size=xl', 'X-Track': 'none', 'X-Idempotency-Key': `order ${place.port}` },
      attachments: [{ filename: 'größe.txt', content: 'XL' }],
    }
    const sent = await transport.sendMail(mail)
    t.equal((await transport.sendMail(mail)).response, sent.response, 'written anew, the same mail')
    await t.rejects(transport.sendMail({ ...mail, text: 'Größe L' }), /554/)
    t.match(sent.response, /^250 2\.0\.0 queued as msg_\w{26} msg_\w{26} msg_\w{26}$/)
    const stored = lastStored()
    t.same(addressesOf(stored), ['ada@example.net', 'bob@example.org', 'carla@example.org'])
    t.match(stored.content, {
      subject: 'Größe',
      tags: { size: 'xl' },
      tracking: { opens: false, clicks: false },
      from: { name: 'Acme, Orders', address: 'orders@acme.com' },
    })
    t.notMatch(stored.raw, /carla|X-Tags|X-Track/i)
    t.match(stored.raw, /^Cc: bob@example\.org\r$/m)
    transport.close()
  }
  const pool = createTransport({ host: '127.0.0.1', port: plain, ignoreTLS: true, auth, pool: true, maxConnections: 2 })
  const mails = Array.from({ length: 20 }, (_, index) =>
    pool.sendMail({ from: 'orders@acme.com', to: `to${index}@example.net`, subject: 'x', text: 'x' }),
  )
  t.equal((await Promise.all(mails)).length, 20)
  t.equal(parts.stored.splice(0).length, 20)
  pool.close()
  const stranger = createTransport({ host: '127.0.0.1', port: plain, ignoreTLS: true, auth })
  await t.rejects(stranger.sendMail({ from: 'a@acme.org', to: 'ada@example.net', text: 'x' }), {
    responseCode: 550,
    message: /5\.7\.1 domain_not_verified/,
  })
  await t.rejects(stranger.sendMail({ from: 'a@acme.com', to: 'ada@localhost', text: 'x' }), {
    responseCode: 553,
    message: /5\.1\.3 invalid_recipient/,
  })
  stranger.close()
})

const PYTHON_PROGRAM = `
import smtplib, ssl, sys
from email.message import EmailMessage
host, port, key, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
context = ssl._create_unverified_context()
mail = EmailMessage()
mail['From'] = 'Café <orders@acme.com>'
mail['To'] = 'ada@example.net'
mail['Subject'] = 'Order 7'
mail['X-Idempotency-Key'] = mode
mail.set_content('Dear Ada,\\n.\\n..two dots\\n')
smtp = smtplib.SMTP_SSL(host, port, context=context) if mode == 'ssl' else smtplib.SMTP(host, port)
if mode == 'starttls':
    smtp.starttls(context=context)
smtp.login('apikey', key)
print(smtp.send_message(mail), smtp.noop())
smtp.quit()
`

t.test('Python smtplib', { skip: missingPrograms({ python3: ['python3'] }) }, async (t) => {
  for (const [mode, port] of [
    ['starttls', starttls],
    ['ssl', implicit],
    ['plain', plain],
  ] as const) {
    const { code, output } = await run(PYTHON, ['-c', PYTHON_PROGRAM, '127.0.0.1', String(port), key, mode])
    t.equal(code, 0, output)
    const stored = lastStored()
    t.same(addressesOf(stored), ['ada@example.net'])
    t.match(stored.raw, 'Dear Ada,\r\n.\r\n..two dots\r\n', 'dots arrive as they are')
    t.match(stored.content.from, { name: 'Café', address: 'orders@acme.com' })
  }
})

const noSwaks = missingPrograms({ swaks: ['swaks'] })
const canSpeakTls = spawnSync('perl', ['-MNet::SSLeay', '-e', '1'], { stdio: 'ignore' }).status === 0
const noSwaksWithTls = noSwaks !== false || canSpeakTls ? noSwaks : 'needs the Debian packages libnet-ssleay-perl'
const swaksWords = [
  '--server',
  '127.0.0.1',
  '--from',
  'orders@acme.com',
  '--to',
  'ada@example.net,bob@example.org',
  '--auth-user',
  'anything',
  '--auth-password',
  key,
]

async function sendsWithSwaks(t: Test, ways: string[][]): Promise<void> {
  for (const way of ways) {
    const { code, output } = await run('swaks', [...swaksWords, ...way])
    t.equal(code, 0, output)
    t.match(output, /250 2\.0\.0 queued as msg_\w{26} msg_\w{26}/)
    t.same(addressesOf(lastStored()), ['ada@example.net', 'bob@example.org'])
  }
}

t.test('swaks', { skip: noSwaks }, async (t) => {
  await sendsWithSwaks(t, [
    ['--port', String(plain), '--auth', 'PLAIN'],
    ['--port', String(plain), '--auth', 'LOGIN', '--pipeline'],
  ])
  const noTls = await run('swaks', [...swaksWords, '--port', String(starttls), '--auth', 'PLAIN'])
  t.not(noTls.code, 0, 'without TLS there is no login')
})

t.test('swaks with TLS', { skip: noSwaksWithTls }, async (t) => {
  await sendsWithSwaks(t, [
    ['--port', String(starttls), '--tls', '--auth', 'LOGIN'],
    ['--port', String(implicit), '--tlsc', '--auth', 'PLAIN'],
  ])
})

t.test('msmtp', { skip: missingPrograms({ msmtp: ['msmtp'] }) }, async (t) => {
  const folder = t.testdir({ aliases: 'root: ada@example.net\n' })
  const file = join(folder, 'msmtprc')
  const configure = (port: number, tls: string[]): void => {
    const lines = [
      'account default',
      'host 127.0.0.1',
      `port ${port}`,
      'auth on',
      'user apikey',
      `password ${key}`,
      'from orders@acme.com',
      ...tls,
      '',
    ]
    writeFileSync(file, lines.join('\n'))
    chmodSync(file, 0o600)
  }
  const mail = 'From: orders@acme.com\nTo: ada@example.net\nBcc: bob@example.org\nSubject: hi\n\n.\nbody\n'
  for (const [port, tls] of [
    [starttls, ['tls on', 'tls_certcheck off']],
    [implicit, ['tls on', 'tls_starttls off', 'tls_certcheck off']],
  ] as const) {
    configure(port, [...tls])
    const { code, output } = await run('msmtp', [`--file=${file}`, '--read-recipients'], mail)
    t.equal(code, 0, output)
    const stored = lastStored()
    t.same(addressesOf(stored), ['ada@example.net', 'bob@example.org'])
    t.match(stored.raw, /\r\n\r\n\.\r\nbody\r\n$/)
  }
  const aliases = `aliases ${join(folder, 'aliases')}`
  const completing = ['from %U@acme.com', 'set_from_header on', 'allow_from_override off', aliases]
  configure(starttls, ['tls on', 'tls_certcheck off', ...completing])
  const cron = 'From: "(Cron Daemon)" <root>\nTo: root\nSubject: Cron <root@web1> backup\n\nfailed\n'
  const { code, output } = await run('msmtp', [`--file=${file}`, '-i', '-oem', '-t', '-f', 'root'], cron)
  t.equal(code, 0, output)
  t.match(lastStored(), { content: { from: { address: /@acme\.com$/ } } }, 'inbound/README.md "Submission"')
})

t.test('curl', { skip: missingPrograms({ curl: ['curl'] }) }, async (t) => {
  const mail = 'From: orders@acme.com\r\nTo: ada@example.net\r\nSubject: hi\r\n\r\nbody\r\n'
  const shared = [
    '--silent',
    '--show-error',
    '--insecure',
    '--mail-from',
    'orders@acme.com',
    '--mail-rcpt',
    'ada@example.net',
    '--upload-file',
    '-',
  ]
  const ways = [
    [`smtp://127.0.0.1:${starttls}`, '--ssl-reqd'],
    [`smtps://127.0.0.1:${implicit}`],
    [`smtp://127.0.0.1:${plain}`],
  ]
  for (const way of ways) {
    const { code, output } = await run('curl', [...shared, ...way, '--user', `apikey:${key}`], mail)
    t.equal(code, 0, output)
    t.match(lastStored().raw, /\r\n\r\nbody\r\n$/)
  }
})
