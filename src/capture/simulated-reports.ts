/**
 * The reports of `late` and `complained` as the mail servers of the world write them: multipart/report (RFC 6522) of
 * non-delivery (RFC 3464) and of abuse (RFC 5965), with the header of the message, cut at 64 KiB. Pure: texts are
 * Latin-1, so that every byte of the header comes back as it was.
 */
import { NO_SUCH_ACCOUNT } from './simulated-recipients.ts'

/** What a report is about. */
export interface ReportedMail {
  /** Envelope. */
  from: string
  to: string
  /** The sending side. */
  remoteAddress: string
  bytes: Buffer
}

interface ReportingFacts {
  /** Of the reporting server. */
  hostName: string
  /** Unix milliseconds. */
  at: number
  /** Unique: for Message-ID and boundary, letters and digits. */
  id: string
}

/** A mail with the null sender (RFC 3464 §2). */
export interface Report {
  to: string
  bytes: Buffer
}

const MOST_HEADER_BYTES = 64 * 1024
const MOST_SUBJECT_CHARACTERS = 200
/** 48 characters of base32 name a message in Message-ID and reference header (content/README.md "Tokens"). */
const TOKEN = /^[a-z2-7]{48}$/
const TOKEN_HEADERS = ['CFBL-Feedback-ID', 'X-Sternpost-Ref', 'Message-ID']

/** null for mail that itself came with the null sender: nobody is told (RFC 5321 §6.1). */
export function bounceReport(mail: ReportedMail, facts: ReportingFacts): Report | null {
  if (mail.from === '') return null
  const status = [
    `Reporting-MTA: dns; ${facts.hostName}`,
    `Arrival-Date: ${dateText(facts.at)}`,
    '',
    `Final-Recipient: ${typedAddress(mail.to)}`,
    'Action: failed',
    `Status: ${NO_SUCH_ACCOUNT.split(' ')[0]}`,
    `Diagnostic-Code: smtp; 550 ${NO_SUCH_ACCOUNT}`,
  ]
  const to = `  ${plainAddress(mail.to)}`
  const bytes = composeReport({
    facts,
    to: mail.from,
    from: `Mail Delivery System <mailer-daemon@${facts.hostName}>`,
    subject: 'Undelivered Mail Returned to Sender',
    reportType: 'delivery-status',
    text: ['Your message could not be delivered to this recipient:', '', to, '', `550 ${NO_SUCH_ACCOUNT}`],
    fields: status,
    returned: headerOf(mail.bytes),
  })
  return { to: mail.from, bytes }
}

/** null when neither the message nor the configuration names a complaint address. */
export function complaintReport(
  mail: ReportedMail,
  facts: ReportingFacts & { complaintAddress: string | null },
): Report | null {
  const header = headerOf(mail.bytes)
  const to = complaintAddressIn(header, mail.from) ?? facts.complaintAddress
  if (to === null) return null
  // What follows the at sign; a name has at most 253 characters (RFC 1035 §2.3.4).
  const domain = /@([^>\s]{1,253})/.exec(headerValue(header, 'From') ?? '')?.[1]
  const bytes = composeReport({
    facts,
    to,
    from: `Abuse desk <abuse@${facts.hostName}>`,
    subject: `FW: ${headerValue(header, 'Subject')?.slice(0, MOST_SUBJECT_CHARACTERS) ?? ''}`,
    reportType: 'feedback-report',
    text: ['A recipient has marked this message as spam.'],
    fields: [
      'Feedback-Type: abuse',
      'User-Agent: Sternpost-Capture/1.0',
      'Version: 1',
      `Original-Mail-From: <${plainAddress(mail.from)}>`,
      `Original-Rcpt-To: <${plainAddress(mail.to)}>`,
      `Arrival-Date: ${dateText(facts.at)}`,
      ...(domain === undefined ? [] : [`Reported-Domain: ${domain}`]),
      `Source-IP: ${mail.remoteAddress}`,
    ],
    returned: header,
  })
  return { to, bytes }
}

/** As a mailbox provider finds it: the address of RFC 9477, else `f-` and the message's token at the return path. */
function complaintAddressIn(header: string, returnPath: string): string | null {
  // The address in front of the parameters.
  const named = /^[^\s;<>]+@[^\s;<>]+/.exec(headerValue(header, 'CFBL-Address') ?? '')?.[0]
  if (named !== undefined) return named
  const domain = returnPath.slice(returnPath.lastIndexOf('@') + 1)
  const token = TOKEN_HEADERS
    // The value itself, or what stands between the angle bracket and the at sign.
    .map((name) => (headerValue(header, name) ?? '').replace(/^<([^@]*)@.*$/, '$1').toLowerCase())
    .find((value) => TOKEN.test(value))
  return token === undefined || domain === '' ? null : `f-${token}@${domain}`
}

interface ReportParts {
  facts: ReportingFacts
  to: string
  from: string
  subject: string
  reportType: 'delivery-status' | 'feedback-report'
  /** Lines. */
  text: string[]
  /** Lines of the part that programs read. */
  fields: string[]
  /** The header of the message. */
  returned: string
}

function composeReport({ facts, to, from, subject, reportType, text, fields, returned }: ReportParts): Buffer {
  const boundary = `report-${facts.id}`
  const part = (type: string, lines: string[]): string[] => [`--${boundary}`, `Content-Type: ${type}`, '', ...lines, '']
  const lines = [
    `From: ${from}`,
    `To: <${to}>`,
    `Subject: ${subject}`,
    `Date: ${dateText(facts.at)}`,
    `Message-ID: <${facts.id}@${facts.hostName}>`,
    'Auto-Submitted: auto-replied',
    'MIME-Version: 1.0',
    `Content-Type: multipart/report; report-type=${reportType}; boundary="${boundary}"`,
    '',
    ...part('text/plain; charset=us-ascii', text),
    ...part(`message/${reportType}`, fields),
    ...part('text/rfc822-headers', [returned]),
    `--${boundary}--`,
    '',
  ]
  return Buffer.from(lines.join('\r\n'), 'latin1')
}

/** Up to the empty line, without it. */
function headerOf(bytes: Buffer): string {
  const text = bytes.toString('latin1', 0, MOST_HEADER_BYTES)
  const end = text.indexOf('\r\n\r\n')
  return end < 0 ? text : text.slice(0, end)
}

/** The value of the first such field, unfolded, or undefined. */
function headerValue(header: string, name: string): string | undefined {
  // A line, and further ones that begin with white space.
  const field = new RegExp(`^${name}:((?:[^\\r\\n]|\\r\\n[ \\t])*)`, 'im').exec(header)?.[1]
  // The line ends of a folded field.
  return field?.replace(/\r\n/g, '').trim()
}

/** RFC 3464 §2.3.2; an address that is not ASCII as RFC 6533 §3 writes it. */
function typedAddress(address: string): string {
  return isAscii(address) ? `rfc822; ${address}` : `utf-8; ${plainAddress(address)}`
}

/** utf-8-addr-xtext of RFC 6533 §3. */
function plainAddress(address: string): string {
  if (isAscii(address)) return address
  const written = (one: string): string => `\\x{${one.codePointAt(0)?.toString(16).toUpperCase()}}`
  return [...address].map((one) => (isAscii(one) ? one : written(one))).join('')
}

function isAscii(text: string): boolean {
  // Nothing but printable characters of US-ASCII.
  return /^[!-~]*$/.test(text)
}

/** RFC 5322 §3.3. */
function dateText(milliseconds: number): string {
  return new Date(milliseconds).toUTCString().replace('GMT', '+0000')
}
