/**
 * Hostile mail: random changes of reports, and inputs made to be slow. Nothing throws, takes long or keeps memory.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { judgeReported } from '../../src/mail/report/judge-report.ts'
import { readReport } from '../../src/mail/report/read-report.ts'
import { CORPORA, hasCorpora, shippedClassifier } from '../support/corpus-score.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const CASES = IS_FULL ? 100_000 : 10_000
const SEED = Number(process.env['TEST_SEED'] ?? Date.now() % 1_000_000)
const MEBIBYTE = 1_048_576
/** The promise is 100 ms of CPU for a MiB; the rest is for a machine that does other things, too. */
const MOST_MILLISECONDS = 400
const MOST_KEPT_BYTES = 32 * MEBIBYTE

const FIXTURES = new URL('../fixtures/mail/', import.meta.url)
const classify = shippedClassifier()

function seeds(): Buffer[] {
  const own = readdirSync(FIXTURES)
    .filter((name) => name.endsWith('.eml'))
    .map((name) => new URL(name, FIXTURES))
  const folder = `${CORPORA}/bounces/files`
  const others = hasCorpora() ? readdirSync(folder).map((name) => `${folder}/${name}`) : []
  return [...own, ...others].map((file) => readFileSync(file))
}

/** Numbers below a limit, the same for a seed (a linear congruential generator, Numerical Recipes). */
function randomFrom(seed: number): (limit: number) => number {
  let state = seed >>> 0
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * limit)
  }
}

const PIECES = [
  '\n\n',
  '\r',
  '\0',
  '--',
  '@',
  '<',
  '>',
  '=',
  '=?utf-8?b?',
  'Final-Recipient: rfc822; ',
  'Content-Type: multipart/mixed; boundary=',
  'Content-Type: message/rfc822\n\n',
  'Content-Transfer-Encoding: base64\n\n',
  '550 5.1.1 ',
  '\u001b$B',
  '\u00ff\u00fe',
].map((piece) => Buffer.from(piece, 'latin1'))

/** One to eight changes: bytes flipped, pieces cut out, doubled, inserted, or taken from another mail. */
function mutate(mails: readonly Buffer[], random: (limit: number) => number): Buffer {
  const pick = (): Buffer => mails[random(mails.length)] ?? Buffer.alloc(0)
  let bytes = Buffer.from(pick())
  for (let change = random(8) + 1; change > 0; change--) {
    const at = random(bytes.length + 1)
    const length = random(200)
    const [before, piece, after] = [bytes.subarray(0, at), bytes.subarray(at, at + length), bytes.subarray(at + length)]
    switch (random(6)) {
      case 0:
        bytes = Buffer.concat([before, after])
        break
      case 1:
        bytes = Buffer.concat([before, piece, piece, piece, after])
        break
      case 2:
        bytes = Buffer.concat([before, PIECES[random(PIECES.length)] ?? piece, piece, after])
        break
      case 3:
        bytes = Buffer.concat([before, pick().subarray(at, at + length * 10), after])
        break
      case 4:
        bytes = Buffer.from(before)
        break
      default:
        bytes[at] = random(256)
    }
  }
  return bytes
}

/** Milliseconds of CPU. */
function cpuOf(action: () => void): number {
  const before = process.cpuUsage()
  action()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}

/** Judges one of the recipients, as the caller does: the one that its token names. */
function readAndJudge(bytes: Buffer): void {
  const [first] = readReport(bytes).recipients
  if (first !== undefined) judgeReported(first, classify, null)
}

const collectGarbage = ((): (() => void) => {
  setFlagsFromString('--expose-gc')
  const collect: unknown = runInNewContext('gc')
  return () => {
    if (typeof collect === 'function') collect()
  }
})()

t.test('random changes of reports make nothing throw, and leave no memory behind', { timeout: 600_000 }, async (t) => {
  t.comment(`seed ${SEED}, ${CASES} cases`)
  const random = randomFrom(SEED)
  const mails = seeds()
  for (let warmup = 0; warmup < 500; warmup++) readAndJudge(mutate(mails, random))
  collectGarbage()
  const before = process.memoryUsage().heapUsed
  const failures: string[] = []
  let slowest = 0
  for (let index = 0; index < CASES; index++) {
    const bytes = mutate(mails, random)
    try {
      slowest = Math.max(
        slowest,
        cpuOf(() => readAndJudge(bytes)),
      )
    } catch (thrown) {
      failures.push(`case ${index}: ${String(thrown)} for ${bytes.toString('base64').slice(0, 2_000)}`)
    }
  }
  t.strictSame(failures, [])
  t.comment(`slowest ${slowest.toFixed(0)} ms`)
  t.ok(slowest < MOST_MILLISECONDS, `slowest ${slowest.toFixed(0)} ms`)
  collectGarbage()
  const kept = process.memoryUsage().heapUsed - before
  t.ok(kept < MOST_KEPT_BYTES, `${Math.round(kept / MEBIBYTE)} MiB kept`)
})

const DAEMON = 'Return-Path: <>\nFrom: MAILER-DAEMON@x.example\nTo: a@b.example\nSubject: Returned mail\n'
const STATUS = `${DAEMON}Content-Type: multipart/report; report-type=delivery-status; boundary=b\n\n--b\n`
const html = (piece: string): string => `${DAEMON}Content-Type: text/html\n\n${fill(piece)}`
const plain = (piece: string): string => `${DAEMON}\n${fill(piece)}`

function fill(piece: string, length = MEBIBYTE): string {
  return piece.repeat(Math.ceil(length / piece.length)).slice(0, length)
}

/** Each a MiB of what would make a careless reader start over and over again. */
const HOSTILE: Readonly<Record<string, string>> = {
  'one byte': fill('\0'),
  'line feeds': fill('\n'),
  returns: fill('\r'),
  'line ends': fill('\r\n'),
  dashes: plain('--\n'),
  'at signs': plain('@'),
  addresses: plain('a@b.cc '),
  'address lines': plain('a@b.cc\n'),
  'long domains': plain(`a@${'b'.repeat(250)}`),
  tags: html('<'),
  entities: html('&'),
  styles: html('<style>'),
  breaks: html('<br> '),
  spaces: plain(' '),
  'blank lines': plain(' \n'),
  'one long field': `A: ${fill('b')}`,
  fields: fill('a:\n'),
  folds: `A: b\n${fill(' c\n')}`,
  'fields in text': plain('to:\n'),
  'headers in text': plain('From: mailer-daemon\nto: x\nreceived: y\n'),
  quotes: plain('> '),
  marks: plain('"'),
  'nested parts': Array.from(
    { length: 10_000 },
    (_, level) => `Content-Type: multipart/mixed; boundary=b${level}\n\n--b${level}\n`,
  ).join(''),
  'nested messages': fill('Content-Type: message/rfc822\n\n'),
  separators: `Content-Type: multipart/mixed; boundary=b\n\n${fill('--b\n')}`,
  'encoded message': `Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n${Buffer.from(
    fill('a: b\n'),
  ).toString('base64')}`,
  'quoted-printable': `${DAEMON}Content-Transfer-Encoding: quoted-printable\n\n${fill('=41')}`,
  'equal signs': `${DAEMON}Content-Transfer-Encoding: quoted-printable\n\n${fill('=    ')}`,
  recipients: `${STATUS}Content-Type: message/delivery-status\n\n${fill(
    'Final-Recipient: rfc822; a@b.example\nAction: failed\n\n',
  )}`,
  'folded diagnostic': `${STATUS}Content-Type: message/delivery-status\n\nFinal-Recipient: rfc822;a@b.example\n${`Diagnostic-Code:${fill(' \n x')}`}`,
  'failed recipients': `X-Failed-Recipients: ${fill('a@b.example,', 60_000)}\n${plain('c@d.example\n')}`,
  replies: plain('550 5.1.1 <a@b.example>... User unknown\n'),
  codes: plain('5.1.1.'),
  words: plain('could not deliver to user unknown '),
  'encoded words': `Subject: ${fill('=?utf-8?q?a?= ')}\n\n`,
  'half words': `Subject: ${fill('=?')}\n\n`,
  parameters: `Content-Type: text/plain${fill(';a="')}\n\n`,
  warnings: `Subject: ${fill('warning:')}\n\n`,
  notifications: plain('{"notificationType":'),
  braces: `${DAEMON}\n"notificationType"${fill('{')}`,
  'guessed separators': plain('boundary=\n--x\ncontent-type:'),
  japanese: `Content-Type: text/plain; charset=iso-2022-jp\n\n${fill('\u001b$B$3')}`,
}

t.test('a MiB of anything takes a moment', { timeout: 300_000 }, async (t) => {
  const times = Object.entries(HOSTILE).map(([name, text]): [string, number] => {
    const bytes = Buffer.from(text, 'latin1')
    // The best of three: the other two may have met the collector or another process.
    const trials = [1, 2, 3].map(() => cpuOf(() => readAndJudge(bytes)))
    return [name, Math.min(...trials)]
  })
  const [slowest, milliseconds] = times.toSorted(([, one], [, other]) => other - one)[0] ?? ['none', 0]
  t.comment(`slowest: ${slowest}, ${milliseconds.toFixed(0)} ms`)
  for (const [name, time] of times) t.ok(time < MOST_MILLISECONDS, `${name}: ${time.toFixed(0)} ms`)
})
