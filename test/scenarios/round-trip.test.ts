/**
 * What was posted arrives, byte for byte: random bodies and file names over HTTP and by SMTP submission, read again by
 * Python's email package. Line ends are equal whatever they are.
 */
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { createTransport } from 'nodemailer'
import t from 'tap'
import { missingPrograms, PYTHON } from '../support/programs.ts'
import { startSandbox } from '../support/sandbox-process.ts'
import { until } from '../support/until.ts'

const MESSAGES = 100
const SEED = 22
const LONGEST_LINE = 998
const MOST_OUTPUT = 256 * 1024 * 1024
const DEADLINE = 120_000

/** Reads paths of mails from the first line on; prints the leaves of each: type, name, bytes in base64. */
const READER = `
import sys, json, base64, email, email.policy
def leaves(raw):
    mail = email.message_from_bytes(base64.b64decode(raw), policy=email.policy.default)
    for part in mail.walk():
        if not part.is_multipart():
            yield [part.get_content_type(), part.get_filename(), base64.b64encode(part.get_payload(decode=True)).decode()]
print(json.dumps([list(leaves(line)) for line in sys.stdin]))
`

type Leaf = [type: string, name: string | null, bytes: string]

interface Posted {
  text: string
  html: string | null
  files: { name: string; bytes: Buffer }[]
}

const word = fc.oneof(
  fc.constantFrom('.', '..', ' ', '\t', '=', '=20', '--', 'From ', '', '{{', 'x'.repeat(77), 'é'.repeat(50)),
  fc.constantFrom('Grüße', 'Здравствуйте', 'مرحبا', '你好', 'こんにちは', '안녕하세요', 'שלום', 'नमस्ते', 'สวัสดี', '🎉👩‍👩‍👧'),
  fc.string({ maxLength: 40 }),
)
const line = fc.oneof(
  { weight: 9, arbitrary: fc.array(word, { maxLength: 8 }).map((words) => words.join(' ')) },
  { weight: 1, arbitrary: fc.constantFrom('a'.repeat(LONGEST_LINE), '.'.repeat(LONGEST_LINE), '='.repeat(400)) },
)
const body = fc
  .tuple(
    fc.array(line, { minLength: 1, maxLength: 12 }),
    fc.constantFrom('', '\n', '\n\n\n'),
    fc.constantFrom('\n', '\r\n'),
  )
  .map(([lines, end, lineEnd]) => `${lines.join('\n')}${end}`.replace(/[^\P{Cc}\t\n]/gu, '').replaceAll('\n', lineEnd))
  .filter((text) => text.trim() !== '')
/** One that is quoted-printable: mostly ASCII. */
const plainBody = body.map((text) => text.replace(/[^\n\r\t -~]/g, 'e')).filter((text) => text.trim() !== '')
const fileName = fc
  .tuple(fc.array(word, { minLength: 1, maxLength: 6 }), fc.constantFrom('.pdf', '.txt', '', '.tar.gz'))
  .map(([words, end]) => `${words.join(' ')}${end}`.replace(/[\p{Cc}/\\]/gu, '').trim())
  .filter((name) => name !== '' && [...name].length <= 200)
const posted: fc.Arbitrary<Posted> = fc.record({
  text: fc.oneof(plainBody, body),
  html: fc.option(body, { freq: 2 }),
  files: fc.array(
    fc.record({ name: fileName, bytes: fc.integer({ max: 300, min: 0 }).map((size) => randomBytes(size)) }),
    { maxLength: 3 },
  ),
})

const skip = missingPrograms({ python3: ['python3'] })

t.setTimeout(2 * DEADLINE)

t.test('random bodies and names arrive as they were posted', { skip }, async (t) => {
  const server = await startSandbox(t)
  const mails = fc.sample(posted, { seed: SEED, numRuns: 2 * MESSAGES })
  const sent = new Map<string, { posted: Posted; raw: Buffer | null }>()
  const { smtp } = server.banner as unknown as { smtp: string }
  const [host, port] = smtp.split(':')
  const auth = { user: 'apikey', pass: server.banner.key }
  const transport = createTransport({ host: host ?? '', port: Number(port), ignoreTLS: true, auth, pool: true })
  t.teardown(() => transport.close())
  for (const [index, mail] of mails.entries()) {
    const to = `reader-${index}@dest.test`
    const isHttp = index < MESSAGES
    const raw = isHttp ? null : rawMail(mail, to)
    sent.set(to, { posted: mail, raw })
    if (raw !== null) {
      await transport.sendMail({ envelope: { from: 'shop@sandbox.test', to: [to] }, raw })
      continue
    }
    const attachments = mail.files.map(({ name, bytes }) => ({ name, content: bytes.toString('base64') }))
    const html = mail.html === null ? {} : { html: mail.html }
    const answer = await server.ask('POST', '/v1/email/send', {
      from: 'shop@sandbox.test',
      to,
      subject: 'Round trip',
      text: mail.text,
      attachments,
      ...html,
      track: { opens: false, clicks: false },
    })
    if (answer['success'] !== true) t.fail(JSON.stringify(answer))
  }

  interface Entry {
    id: string
    envelope: { to: string[] }
  }
  const entries: Entry[] = []
  for (const to of sent.keys()) {
    const find = async () => (await server.list<Entry>(`/dev/inbox?to=${to}`))[0]
    entries.push(await until(`the mail to ${to}`, find, DEADLINE))
  }
  const captured = await Promise.all(
    entries.map(async ({ id }) => {
      const answer = await fetch(new URL(`/dev/inbox/${id}/raw`, server.banner.base_url))
      return Buffer.from(await answer.arrayBuffer())
    }),
  )
  const input = captured.map((bytes) => bytes.toString('base64')).join('\n')
  const read = JSON.parse(
    execFileSync(PYTHON, ['-c', READER], { input, maxBuffer: MOST_OUTPUT }).toString(),
  ) as Leaf[][]
  let faults = 0
  for (const [index, { envelope }] of entries.entries()) {
    const given = sent.get(envelope.to[0] ?? '')
    const leaves = read[index] ?? []
    if (given === undefined) throw new Error(`nobody wrote to ${envelope.to.join()}`)
    const what = `${envelope.to[0]}: ${JSON.stringify(given.posted.text.slice(-30))}`
    const isSame = t.strictSame(leaves.map(shown), expectedLeaves(given.posted, given.raw === null), what)
    const isWhole =
      given.raw === null ||
      captured[index]?.subarray(-given.raw.length + headerLength(given.raw)).equals(bodyOf(given.raw))
    if (!isSame || isWhole !== true) faults += 1
  }
  t.equal(faults, 0)
})

/** As an application writes it: 8-bit text, files as base64. */
function rawMail({ text, html, files }: Posted, to: string): Buffer {
  const boundary = randomBytes(12).toString('hex')
  const leaf = (type: string, content: string): string =>
    `--${boundary}\r\nContent-Type: ${type}; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n${folded(Buffer.from(content))}\r\n`
  const parts = [
    leaf('text/plain', text),
    ...(html === null ? [] : [leaf('text/html', html)]),
    ...files.map(
      ({ name, bytes }) =>
        `--${boundary}\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n` +
        `Content-Disposition: attachment; filename*=utf-8''${encodeURIComponent(name).replace(/['()*]/g, percent)}\r\n\r\n${folded(bytes)}\r\n`,
    ),
  ]
  const header =
    `From: shop@sandbox.test\r\nTo: ${to}\r\nSubject: Round trip\r\nX-Track: none\r\nMIME-Version: 1.0\r\n` +
    `Content-Type: multipart/mixed; boundary="${boundary}"\r\n\r\n`
  return Buffer.from(`${header}${text.replace(/\r?\n/g, '\r\n')}\r\n${parts.join('')}--${boundary}--\r\n`)
}

const percent = (character: string): string => `%${character.charCodeAt(0).toString(16)}`
const folded = (bytes: Buffer): string => bytes.toString('base64').replace(/.{76}/g, '$&\r\n')
const headerLength = (raw: Buffer): number => raw.indexOf('\r\n\r\n') + 4
const bodyOf = (raw: Buffer): Buffer => raw.subarray(headerLength(raw))

/** Text with one kind of line end, files as they are. */
function shown([type, name, bytes]: Leaf): [string, string | null, string] {
  const content = Buffer.from(bytes, 'base64')
  return [type, name, name === null ? content.toString().replaceAll('\r\n', '\n') : content.toString('hex')]
}

function expectedLeaves({ text, html, files }: Posted, isHttp: boolean): [string, string | null, string][] {
  const plain = (content: string): string => content.replaceAll('\r\n', '\n')
  const typeOf = (name: string): string => (isHttp ? typeByName(name) : 'application/octet-stream')
  return [
    ['text/plain', null, plain(text)],
    ...(html === null ? [] : [['text/html', null, plain(html)] as [string, null, string]]),
    ...files.map(({ name, bytes }): [string, string, string] => [typeOf(name), name, bytes.toString('hex')]),
  ]
}

function typeByName(name: string): string {
  if (name.endsWith('.pdf')) return 'application/pdf'
  return name.endsWith('.txt') ? 'text/plain' : name.endsWith('.gz') ? 'application/gzip' : 'application/octet-stream'
}
