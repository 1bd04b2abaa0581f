/**
 * What a report says of one recipient changes nothing for another: not in the fields, not in the prose, in whatever
 * order and form they come. 300 random reports; `TEST_SCALE=full`: 10,000.
 */
import fc from 'fast-check'
import t from 'tap'
import { judgeReported } from '../../src/mail/report/judge-report.ts'
import { readReport } from '../../src/mail/report/read-report.ts'
import { shippedClassifier } from '../support/corpus-score.ts'

const REPORTS = process.env['TEST_SCALE'] === 'full' ? 10_000 : 300
const SEED = 22

const classify = shippedClassifier()

/** What a server says of one recipient; without prose it is named in the fields alone. */
interface Said {
  action: string
  status: string
  diagnostic: string | null
  prose: string | null
}

/** The forms of the servers that write most of the reports. */
interface Form {
  /** `fields`: those of RFC 3464 within the text; `prose`: there are none. */
  kind: 'report' | 'fields' | 'prose'
  hasProseBehind: boolean
  proseOf: (address: string, text: string) => string
  opening: string
}

const REPLIES = [
  '550 5.1.1 User unknown (in reply to RCPT TO command)',
  '552 5.2.2 mailbox is full (in reply to end of DATA command)',
  '554 5.7.1 this message looks like spam (in reply to end of DATA command)',
  '421 4.7.0 try again later (in reply to MAIL FROM command)',
  '550 no such user here',
  '501 invalid domain name (in reply to HELO command)',
  'mail for this host loops back to myself',
]
const NO_REASON = 'it could not be delivered'
const STATUSES = ['5.0.0', '5.1.1', '5.2.2', '5.7.1', '4.4.7', '5.4.4', '4.0.0']

const said: fc.Arbitrary<Said> = fc.record({
  action: fc.constantFrom('failed', 'failed', 'failed', 'delayed', 'delivered'),
  status: fc.constantFrom(...STATUSES),
  diagnostic: fc.option(fc.constantFrom(...REPLIES), { freq: 2 }),
  prose: fc.option(fc.constantFrom(...REPLIES), { freq: 2 }),
})
const form: fc.Arbitrary<Form> = fc.record({
  kind: fc.constantFrom('report', 'fields', 'prose'),
  hasProseBehind: fc.boolean(),
  proseOf: fc.constantFrom(
    (address: string, text: string) => `<${address}>: host mx.example.org[192.0.2.1] said: ${text}\n`,
    (address: string, text: string) => `  ${address}\n    host mx.example.org [192.0.2.1]\n    ${text}\n`,
    (address: string, text: string) => `The following address failed:\n\n<${address}>:\nRemote host said: ${text}\n`,
    (address: string, text: string) => `Your message to ${address} could not be delivered: ${text}\n`,
    (address: string, text: string) => `Recipient: ${address}\nReason: ${text}\n`,
  ),
  opening: fc.constantFrom(
    '',
    'This is the mail system at host mx.example.net.\n\nYour message could not be delivered.\n',
  ),
})

const ADDRESSES = ['full@example.net', 'gone@example.com', 'ada@example.org', 'info@shop.example']

function report(all: readonly Said[], { kind, hasProseBehind, proseOf, opening }: Form): Buffer {
  const addressOf = (index: number): string => ADDRESSES[index] ?? ''
  const prose = all
    .flatMap(({ prose: text }, index) => (text === null ? [] : [proseOf(addressOf(index), text)]))
    .join('\n')
  const fields = all.map(({ action, status, diagnostic }, index) =>
    [
      `Final-Recipient: rfc822; ${addressOf(index)}`,
      `Action: ${action}`,
      `Status: ${status}`,
      ...(diagnostic === null ? [] : [`Diagnostic-Code: smtp; ${diagnostic}`]),
    ].join('\n'),
  )
  const status = `Reporting-MTA: dns; mx.example.net\n\n${fields.join('\n\n')}\n`
  const header =
    'Return-Path: <>\nFrom: MAILER-DAEMON@mx.example.net\nTo: sender@acme.com\nSubject: Undelivered Mail Returned to Sender\n'
  if (kind === 'prose') {
    const text = all.map((each, index) => proseOf(addressOf(index), each.prose ?? NO_REASON)).join('\n')
    return crlf(`${header}Content-Type: text/plain\n\n${opening}\n${text}`)
  }
  if (kind === 'fields') {
    const text = hasProseBehind ? `${opening}\n${status}\n${prose}` : `${opening}\n${prose}\n${status}`
    return crlf(`${header}Content-Type: text/plain\n\n${text}`)
  }
  const parts = [
    `Content-Type: text/plain\n\n${opening}\n${prose}\n`,
    `Content-Type: message/delivery-status\n\n${status}`,
  ]
  const body = parts.map((part) => `--b\n${part}\n`).join('')
  return crlf(`${header}Content-Type: multipart/report; report-type=delivery-status; boundary=b\n\n${body}--b--\n`)
}

const crlf = (text: string): Buffer => Buffer.from(text.replaceAll('\n', '\r\n'))

/** By address: what is read, and what follows from it. */
function verdicts(bytes: Buffer): Map<string, string> {
  return new Map(
    readReport(bytes).recipients.map((recipient) => {
      const judgement = judgeReported(recipient, classify, null)
      return [recipient.address, JSON.stringify({ ...recipient, judgement })]
    }),
  )
}

t.test('no recipient takes anything from another', async (t) => {
  let compared = 0
  let read = 0
  fc.assert(
    fc.property(
      fc.array(said, { minLength: 2, maxLength: 4 }),
      said,
      fc.nat({ max: 3 }),
      form,
      (all, changed, place, shape) => {
        const index = place % all.length
        const before = verdicts(report(all, shape))
        const after = verdicts(report(all.with(index, changed), shape))
        for (const [other, address] of ADDRESSES.slice(0, all.length).entries()) {
          if (other === index) continue
          compared += 1
          if (before.has(address)) read += 1
          if (before.get(address) !== after.get(address)) {
            throw new Error(`${address}: ${before.get(address)}\nbecame ${after.get(address)}`)
          }
        }
      },
    ),
    { numRuns: REPORTS, seed: SEED },
  )
  t.ok(compared >= REPORTS, `${compared} comparisons`)
  t.ok(read > 0.9 * compared, `${read} were read`)
})

t.test('a full mailbox beside a dead one', async (t) => {
  const both: Said[] = [
    { action: 'failed', status: '5.0.0', diagnostic: null, prose: null },
    { action: 'failed', status: '5.1.1', diagnostic: null, prose: REPLIES[0] ?? '' },
  ]
  for (const kind of ['report', 'fields'] as const) {
    const shape: Form = {
      kind,
      hasProseBehind: false,
      opening: '',
      proseOf: (address, text) => `<${address}>: host mx said: ${text}\n`,
    }
    const { recipients } = readReport(report(both, shape))
    const judged = recipients.map((recipient) => [
      recipient.address,
      judgeReported(recipient, classify, null)?.suppress,
    ])
    t.same(judged, [
      ['full@example.net', 'never'],
      ['gone@example.com', 'always'],
    ])
  }
})
