/**
 * One SMTP dialogue for each number: an honest one, and what is wrong with it. Every dialogue ends with a final dot and
 * QUIT, so that the server ends whatever was begun, and answers all of it before it closes; or it is cut off before.
 */
import { randomSource, type RandomSource } from '../support/random-source.ts'
import { SENDING_DOMAIN } from '../support/two-ips.ts'
import { BAD_TEXTS, mutateBytes } from './bad-values.ts'

export type Step =
  /** Bytes, and whether to look for an answer before the next step. */
  { bytes: Buffer; waits: boolean } | 'tls' | 'abort'

export interface FuzzedDialogue {
  name: string
  steps: Step[]
  /** The first step does not wait for the greeting. */
  isEarly: boolean
  /** From the first byte on (RFC 8314 §3.3). */
  isTls: boolean
  recipients: string[]
  /** It is cut off behind a final dot, whose answer nobody hears. */
  mayBeUnheard: boolean
}

export type Door = 'submission' | 'starttls' | 'implicit' | 'reports'

/** Of the dialogue: commands, each a line of text with its end, and mails. */
type Parts = { text: string; isMail: boolean }[]
type Mutate = (parts: Parts, random: RandomSource) => Parts

const ODD_LINES = [
  'NOOP',
  'RSET',
  'HELP',
  'VRFY root',
  'EXPN list',
  'HELO again.test',
  'EHLO [127.0.0.1]',
  'EHLO',
  'EHLO \xff\xfe',
  'MAIL FROM:<>',
  'MAIL FROM:<a@b.test> SIZE=99999999999',
  'MAIL FROM:<a@b.test> SIZE=-1 BODY=8BITMIME',
  'MAIL FROM:<a@b.test> BODY=BINARYMIME SMTPUTF8 RET=HDRS ENVID=\0',
  'MAIL FROM:<@relay.test:a@b.test>',
  'MAIL FROM: a@b.test',
  'RCPT TO:<>',
  'RCPT TO:<postmaster>',
  'RCPT TO:<"a b"@good1.test>',
  'RCPT TO:<a@good1.test> NOTIFY=NEVER ORCPT=rfc822;x',
  'RCPT TO:<a%b@good1.test>',
  'RCPT TO:<\xc3\xa4@good1.test>',
  'DATA',
  'DATA now',
  'BDAT 5 LAST\r\nhello',
  'BDAT 99999999999999999999',
  'BDAT -1 LAST',
  'STARTTLS',
  'STARTTLS now',
  'AUTH',
  'AUTH PLAIN',
  'AUTH PLAIN =',
  'AUTH PLAIN *',
  'AUTH PLAIN AAAA',
  'AUTH LOGIN',
  'AUTH LOGIN ****',
  'AUTH CRAM-MD5',
  'AUTH XOAUTH2 e30=',
  '*',
  'QUIT',
  'XCLIENT ADDR=127.0.0.1',
  'GET / HTTP/1.1',
  '',
  '.',
  '..',
  '\0',
  'A'.repeat(600),
  'B'.repeat(5_000),
  '\xff'.repeat(300),
]
const ENDS = ['\n', '\r', '\r\r\n', '\n\r', '\0\r\n', ' \r\n', '', '\r\n\r\n']
const DATA_ENDS = ['\n.\n', '\r.\r', '\r\n.\r', '\n.\r\n', '\r\n..\r\n', '\r\n.\0\r\n', '\r\n. \r\n', '.\r\n', '\r\n']
const ODD_BODIES = [
  'no header at all',
  'From: shop@acme.test\r\nFrom: evil@other.test\r\n\r\ntwo of them',
  `From: shop@acme.test\r\n${'X-Many: 1\r\n'.repeat(3_000)}\r\n`,
  `From: shop@acme.test\r\nX-Long: ${'l'.repeat(20_000)}\r\n\r\n`,
  'From: shop@acme.test\r\nX-Idempotency-Key: one\r\n\r\nonce',
  'From: shop@acme.test\r\nX-Tags: a=b, =, \x01\r\nX-Track: maybe\r\n\r\n',
  'From: shop@acme.test\r\nX-Pool: nowhere\r\n\r\n',
  'From: =?utf-8?q?a=0d=0ab?= <shop@acme.test>\r\n\r\nx',
  'From: shop@acme.test\r\n folded\r\n\r\n.\r\n..\r\n...\r\n',
  'From: shop@acme.test\r\n\r\nbare\rcarriage',
  'From: shop@acme.test\r\n\r\nbare\nline',
  'From: shop@acme.test\r\n\r\nnul\0',
  'From: shop@acme.test\r\n\r\n\xff\xfe 8bit \xc3\xa4',
  `From: shop@acme.test\r\n\r\n${'w'.repeat(100_000)}`,
  `From: shop@acme.test\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n${'--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n'.repeat(60)}`,
  '\r\n.hidden\r\n',
]

const MUTATIONS: Record<string, Mutate> = {
  nothing: (parts) => parts,
  order: (parts, random) => {
    const [one, other] = [random.integer(parts.length), random.integer(parts.length)]
    return parts.map((part, index) => parts[index === one ? other : index === other ? one : index] ?? part)
  },
  'left out': (parts, random) => parts.toSpliced(random.integer(parts.length), 1),
  twice: (parts, random) => {
    const at = random.integer(parts.length)
    return parts.toSpliced(at, 0, ...parts.slice(at, at + 1 + random.integer(3)))
  },
  'odd lines': (parts, random) => {
    let mutated = parts
    for (let count = 0; count <= random.integer(4); count++) {
      const line = { text: `${random.oneOf(ODD_LINES)}\r\n`, isMail: false }
      mutated = mutated.toSpliced(random.integer(mutated.length + 1), 0, line)
    }
    return mutated
  },
  'line end': (parts, random) => change(parts, random, false, (text) => text.replace('\r\n', random.oneOf(ENDS))),
  'line bytes': (parts, random) =>
    change(parts, random, false, (text) => mutateBytes(Buffer.from(text, 'latin1'), random).toString('latin1')),
  'odd path': (parts, random) =>
    change(parts, random, false, (text) => text.replace(/<.*>/, () => `<${random.oneOf(BAD_TEXTS).slice(0, 900)}>`)),
  'data end': (parts, random) =>
    change(parts, random, true, (text) => `${text.slice(0, -'\r\n.\r\n'.length)}${random.oneOf(DATA_ENDS)}`),
  'odd body': (parts, random) => change(parts, random, true, () => `${random.oneOf(ODD_BODIES)}\r\n.\r\n`),
  'mail bytes': (parts, random) =>
    change(parts, random, true, (text) => mutateBytes(Buffer.from(text, 'latin1'), random).toString('latin1')),
  smuggled: (parts, random) =>
    change(parts, random, true, (text) => {
      const inner =
        'MAIL FROM:<evil@other.test>\r\nRCPT TO:<smuggled@good1.test>\r\nDATA\r\nFrom: shop@acme.test\r\n\r\nin'
      return text.replace('\r\n.\r\n', `${random.oneOf(DATA_ENDS)}${inner}\r\n.\r\n`)
    }),
}
const NAMES = Object.keys(MUTATIONS)

function change(parts: Parts, random: RandomSource, isMail: boolean, how: (text: string) => string): Parts {
  const at = random.oneOf(parts.flatMap((part, index) => (part.isMail === isMail ? [index] : [-1])))
  return parts.map((part, index) => (index === at ? { ...part, text: how(part.text) } : part))
}

/** `returnPaths`: envelope senders of mail of ours, which reports come back to; nothing else depends on them. */
export function fuzzedDialogue(
  { seed, index, door }: { seed: number; index: number; door: Door },
  key: string,
  returnPaths: readonly string[],
): FuzzedDialogue {
  const random = randomSource(seed * 1_000_003 + index * 3 + 2)
  const own = Array.from(
    { length: 1 + random.integer(3) },
    (_, count) => `s${door[0]}${index}-${count}@good${count}.test`,
  )
  const ours = random.oneOf(returnPaths.length === 0 ? ['b-x@rp.mail.sternpost.test'] : returnPaths)
  const recipients = door === 'reports' ? [ours] : own
  let parts = door === 'reports' ? reportParts(ours, random) : mailParts(own, key, index, random)
  const chosen = Array.from({ length: 1 + random.integer(3) }, () => random.oneOf(NAMES))
  for (const name of chosen) if (parts.length > 0) parts = MUTATIONS[name]?.(parts, random) ?? parts
  const steps = toSteps(parts, random, door)
  const said = saidIn(steps)
  // As they were said: a mutation changes them, too.
  const named = [...said.matchAll(/RCPT TO:\s*<?([^\s<>]+@[^\s<>]+)/gi)].map(([, address = '']) => address)
  return {
    name: `${door}: ${chosen.join(', ')}`,
    steps,
    recipients: [...recipients, ...named],
    isEarly: random.integer(20) === 0,
    isTls: door === 'implicit',
    mayBeUnheard: steps.includes('abort') && said.includes('.\r\n'),
  }
}

function saidIn(steps: readonly Step[]): string {
  return steps.map((step) => (typeof step === 'string' ? '' : step.bytes.toString('latin1'))).join('')
}

function command(text: string): Parts[number] {
  return { text: `${text}\r\n`, isMail: false }
}

function mailParts(recipients: string[], key: string, index: number, random: RandomSource): Parts {
  const token = Buffer.from(`\0apikey\0${random.integer(10) === 0 ? 'sk_live_wrong' : key}`).toString('base64')
  const login = random.integer(4) === 0 ? loginParts(key) : [command(`AUTH PLAIN ${token}`)]
  const mail =
    `From: Shop <shop@${SENDING_DOMAIN}>\r\nTo: ${recipients[0]}\r\nSubject: Order ${index}\r\n` +
    `Message-ID: <${index}@${SENDING_DOMAIN}>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\n` +
    'On its way\r\n..dot\r\n'
  return [command('EHLO app.test'), ...login, ...transaction(`a@${SENDING_DOMAIN}`, recipients, mail)]
}

function loginParts(key: string): Parts {
  const base64 = (text: string): string => Buffer.from(text).toString('base64')
  return [command('AUTH LOGIN'), command(base64('apikey')), command(base64(key))]
}

function transaction(from: string, recipients: string[], mail: string): Parts {
  return [
    command(`MAIL FROM:<${from}>`),
    ...recipients.map((recipient) => command(`RCPT TO:<${recipient}>`)),
    command('DATA'),
    { text: `${mail}\r\n.\r\n`, isMail: true },
  ]
}

/** A bounce (RFC 3464), a complaint (RFC 5965), or words of a person. */
function reportParts(to: string, random: RandomSource): Parts {
  const kind = random.oneOf(['delivery-status', 'feedback-report', 'words'])
  const status = random.oneOf(['5.1.1', '4.2.2', '5.7.1', '9.9.9', ''])
  const fields =
    kind === 'delivery-status'
      ? `Reporting-MTA: dns; mx.test\r\n\r\nFinal-Recipient: rfc822; a@good1.test\r\nAction: failed\r\nStatus: ${status}\r\n`
      : 'Feedback-Type: abuse\r\nUser-Agent: x/1\r\nVersion: 1\r\n'
  const report =
    `--b\r\nContent-Type: text/plain\r\n\r\nsorry\r\n--b\r\nContent-Type: message/${kind}\r\n\r\n${fields}\r\n` +
    `--b\r\nContent-Type: text/rfc822-headers\r\n\r\nReturn-Path: <${to}>\r\nSubject: x\r\n--b--\r\n`
  const type = kind === 'words' ? 'text/plain' : `multipart/report; report-type=${kind}; boundary=b`
  const head = `From: MAILER-DAEMON@mx.test\r\nTo: ${to}\r\nSubject: Report\r\nContent-Type: ${type}\r\n\r\n`
  return [command('EHLO mx.test'), ...transaction('', [to], head + report)]
}

/** Waiting for each answer, all at once, or in slices of some bytes. */
function toSteps(parts: Parts, random: RandomSource, door: Door): Step[] {
  const style = random.oneOf(['polite', 'polite', 'pipelined', 'sliced'])
  const bytesOf = (text: string): Buffer => Buffer.from(text, 'latin1')
  const steps: Step[] = []
  if (style === 'polite') steps.push(...parts.map(({ text }) => ({ bytes: bytesOf(text), waits: true })))
  else {
    const all = bytesOf(parts.map(({ text }) => text).join(''))
    const size = style === 'pipelined' ? all.length || 1 : 1 + random.integer(400)
    for (let at = 0; at < all.length; at += size) steps.push({ bytes: all.subarray(at, at + size), waits: false })
  }
  if (door === 'starttls' && random.integer(5) > 0) {
    steps.splice(Math.min(1, steps.length), 0, { bytes: bytesOf('STARTTLS\r\n'), waits: true }, 'tls')
    steps.splice(3, 0, { bytes: bytesOf('EHLO app.test\r\n'), waits: true })
  }
  if (random.integer(12) === 0) steps.splice(random.integer(steps.length + 1), steps.length, 'abort')
  return steps
}
