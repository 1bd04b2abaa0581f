/**
 * Flights of messages to Debian's Postfix and Exim, and to servers that answer as Google's and Microsoft's do: every
 * mail arrives once, byte for byte as it was signed, and the recipients that are refused are refused alone.
 */
import { generateKeyPairSync } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { dkimVerify } from 'mailauth'
import t, { type Test } from 'tap'
import { createSigner, signMessage } from '../../src/content/mime/dkim.ts'
import type { SendEnd } from '../../src/delivery/session/transaction-end.ts'
import { createTranscript } from '../../src/delivery/session/transcript.ts'
import { ENVELOPE, job, mx, session } from '../delivery/session-kit.ts'
import { startPostfix } from '../support/postfix.ts'
import { missingPrograms } from '../support/programs.ts'
import type { MxMessage, Script } from '../support/scripted-mx.ts'
import { freePort } from '../support/serve-process.ts'
import { missingMailServers, startEximWith } from '../support/unpacked-servers.ts'
import { until } from '../support/until.ts'

const MESSAGES = 40
const IN_FLIGHT = 8
/** Each of these is refused: nobody has such a mailbox. */
const isRefused = (index: number): boolean => index % 10 === 7
const NAME = 'X-Number: '

const pair = generateKeyPairSync('rsa', { modulusLength: 2048 })
const signer = createSigner({
  domain: 'acme.test',
  selector: 's1',
  privateKeyPem: pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
})
const publicKey = pair.publicKey.export({ type: 'spki', format: 'der' }).toString('base64')

/** Lines with dots, bytes beyond US-ASCII, an end without a line end, and one that takes several packets. */
const BODIES = [
  '.\r\n..\r\n...three\r\n',
  'Gr\u00fc\u00dfe\r\n',
  'no line end',
  'QUIT\r\nRSET\r\nBDAT 4 LAST\r\nabcd\r\n',
]

function signed(index: number): Promise<Buffer> {
  const body = `${BODIES[index % BODIES.length]}\r\n${'a line of it\r\n'.repeat(index === 5 ? 8_000 : index)}`
  const head = `From: a@acme.test\r\nTo: b@dest.test\r\nSubject: x\r\n${NAME}${index}\r\nMIME-Version: 1.0\r\n`
  const type = 'Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n'
  const buffer = Buffer.from(`${head}${type}\r\n${body}`)
  const bodyStart = buffer.indexOf('\r\n\r\n') + 4
  return signMessage({ buffer, start: 0, bodyStart, runs: null }, [signer], Date.UTC(2026, 10, 21))
}

interface Server {
  address: string
  port: number
  /** Arrived so far, with what the server puts in front; lines may end with LF. */
  mails(): Buffer[]
}

async function fly(t: Test, server: Server): Promise<void> {
  const opened = await session(t, server, { inFlight: IN_FLIGHT })
  const sent = await Promise.all(Array.from({ length: MESSAGES }, (_none, index) => signed(index)))
  const transcript = createTranscript()
  const ends: Promise<SendEnd>[] = []
  const waiting = sent.map((bytes, index) => {
    const to = isRefused(index) ? 'nobody@dest.test' : 'reader@dest.test'
    return job({
      envelope: { ...ENVELOPE, to, is8Bit: true },
      bytes,
      transcript: index === MESSAGES - 1 ? transcript : null,
      onEnd() {
        ended++
        takeMore()
      },
    })
  })
  let ended = 0
  function takeMore(): void {
    while (ends.length < waiting.length && ends.length - ended < opened.mostTaken()) {
      const next = waiting[ends.length]
      if (next === undefined) return
      ends.push(next.end)
      opened.send(next)
    }
  }
  takeMore()
  await until('all have ended', () => ended === MESSAGES)
  for (const [index, end] of (await Promise.all(ends)).entries()) {
    if (isRefused(index)) t.match(end, { kind: 'refused', stage: 'rcpt' }, `${index}`)
    else t.match(end, { kind: 'accepted' }, `${index}`)
  }
  t.equal(opened.flightProblem(), null)
  t.match(transcript.text(), /> BDAT \d+ LAST/)
  await opened.quit()
  const expected = sent.filter((_bytes, index) => !isRefused(index))
  const mails = await until('all have arrived', () => server.mails().length >= expected.length && server.mails())
  t.equal(mails.length, expected.length, 'each once')
  for (const bytes of expected) {
    const number = new RegExp(`^${NAME}\\d+\r?$`, 'm').exec(bytes.toString('latin1'))?.[0]?.trim() ?? ''
    const mail = mails.find((each) => each.includes(`${number}\n`) || each.includes(`${number}\r\n`))
    const whole = Buffer.from(bytes.at(-1) === 0x0a ? bytes : Buffer.concat([bytes, Buffer.from('\r\n')]))
    const arrived = withCrLf(mail ?? Buffer.alloc(0))
    t.ok(arrived.subarray(arrived.length - whole.length).equals(whole), `${number} is byte for byte the same`)
    const { results } = await dkimVerify(arrived, { resolver: async () => [[`v=DKIM1; k=rsa; p=${publicKey}`]] })
    t.equal(results[0]?.status.result, 'pass', `${number} is signed`)
  }
}

function withCrLf(mail: Buffer): Buffer {
  return Buffer.from(mail.toString('latin1').replaceAll(/\r?\n/g, '\r\n'), 'latin1')
}

const isRoot = process.getuid?.() === 0
const noPostfix = missingPrograms({ postfix: ['postfix'] }) || (isRoot ? false : 'needs root, as Postfix does')

t.test('Postfix takes flights', { skip: noPostfix }, async (t) => {
  const address = '127.0.0.31'
  const port = await freePort(address)
  const postfix = startPostfix({ address, port, domain: 'dest.test', mailboxes: ['reader'] })
  t.teardown(() => postfix.stop())
  await fly(t, { address, port, mails: () => postfix.mails('reader') })
  t.match(postfix.log(), /bdat=/, 'by BDAT')
})

t.test('Exim takes flights', { skip: missingMailServers() }, async (t) => {
  const address = '127.0.0.32'
  const port = await freePort(address)
  let folder = ''
  const exim = await startEximWith({ address, port }, ({ outside, inside }) => {
    folder = join(outside, 'mail')
    mkdirSync(folder)
    return `
primary_hostname = mx.exim.test
spool_directory = ${inside}/spool
log_file_path = ${inside}/spool/%slog
exim_user = Debian-exim
exim_group = Debian-exim
never_users =
local_interfaces = ${address}
daemon_smtp_ports = ${port}
pid_file_path = ${inside}/spool/exim.pid
chunking_advertise_hosts = *
pipelining_advertise_hosts = *
host_lookup =
rfc1413_query_timeout = 0s
acl_smtp_rcpt = check_rcpt
begin acl
check_rcpt:
  deny local_parts = nobody
       message = no such user
  accept
begin routers
take:
  driver = accept
  transport = box
begin transports
box:
  driver = appendfile
  directory = ${inside}/mail
  maildir_format
  user = Debian-exim
`
  })
  t.teardown(() => exim.stop())
  const arrived = (): string[] => (existsSync(join(folder, 'new')) ? readdirSync(join(folder, 'new')) : [])
  await fly(t, { address, port, mails: () => arrived().map((name) => readFileSync(join(folder, 'new', name))) })
})

const GOOGLE: Script = {
  banner: '220 mx.google.com ESMTP 5614622812f47si1 - gsmtp',
  ehlo: [
    '250-mx.google.com at your service, [192.0.2.1]',
    'SIZE 157286400',
    '8BITMIME',
    'ENHANCEDSTATUSCODES',
    'PIPELINING',
    'CHUNKING',
    'SMTPUTF8',
  ]
    .join('\r\n250-')
    .replace(/250-SMTPUTF8$/, '250 SMTPUTF8'),
  mail: '250 2.1.0 OK 5614622812f47si1 - gsmtp',
  rcpt: (line) =>
    line.includes('nobody')
      ? '550-5.1.1 The email account that you tried to reach does not exist. Please try\r\n550 5.1.1 double-checking - gsmtp'
      : '250 2.1.5 OK 5614622812f47si1 - gsmtp',
  data: '354 Go ahead 5614622812f47si1 - gsmtp',
  dot: '250 2.0.0 OK 1795219200 5614622812f47si1 - gsmtp',
  bdat: '250 2.0.0 OK 1795219200 5614622812f47si1 - gsmtp',
  rset: '250 2.1.5 Flushed 5614622812f47si1 - gsmtp',
  quit: '221 2.0.0 closing connection 5614622812f47si1 - gsmtp',
}
const QUEUED =
  '250 2.6.0 <token@acme.test> [InternalId=1, Hostname=X.prod.outlook.com] 9 bytes Queued mail for delivery'
const MICROSOFT: Script = {
  banner: '220 X.mail.protection.outlook.com Microsoft ESMTP MAIL Service ready',
  ehlo: '250-X.mail.protection.outlook.com Hello [192.0.2.1]\r\n250-SIZE 157286400\r\n250-PIPELINING\r\n250-DSN\r\n250-ENHANCEDSTATUSCODES\r\n250-8BITMIME\r\n250-BINARYMIME\r\n250-CHUNKING\r\n250 SMTPUTF8',
  mail: '250 2.1.0 Sender OK',
  rcpt: (line) =>
    line.includes('nobody')
      ? '550 5.4.1 Recipient address rejected: Access denied. [X.prod.protection.outlook.com]'
      : '250 2.1.5 Recipient OK',
  data: '354 Start mail input; end with <CRLF>.<CRLF>',
  dot: QUEUED,
  bdat: QUEUED,
  rset: '250 2.0.0 Resetting',
  quit: '221 2.0.0 Service closing transmission channel',
}

for (const [name, script] of Object.entries({ Google: GOOGLE, Microsoft: MICROSOFT })) {
  t.test(`a server that answers as one of ${name} takes flights`, async (t) => {
    const server = await mx(t, { script })
    const received = (): MxMessage[] => server.messages
    await fly(t, { ...server, mails: () => received().map(({ bytes }) => bytes) })
    t.notMatch(server.connections[0]?.commands.join('\n'), /BINARYMIME/)
  })
}
