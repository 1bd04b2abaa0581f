/**
 * A transport for nodemailer that sends through Sternpost's HTTP API (clients/README.md "nodemailer"). No dependency:
 * it stands alone, with the files beside it, to be copied into an app.
 *
 *   const transporter = nodemailer.createTransport(sternpostTransport({ url: 'https://mail.example.net', apiKey }))
 *   const { messageId } = await transporter.sendMail({ from, to, subject, html })
 *
 * Each recipient (to, cc, bcc) gets a message of their own. 429, 503 and connections that fail are tried again, with an
 * Idempotency-Key, so that nothing is sent twice. Fails with SternpostError when nobody's message was accepted; else
 * those that were not are in `rejected` and `rejectedErrors`. What the API cannot send is refused, never left out.
 */
import { randomUUID } from 'node:crypto'
import {
  createApiClient,
  isRedirect,
  SternpostError,
  type ApiClient,
  type SternpostTransportOptions,
} from './api-client.ts'
import { ContentError, nameOf, readContent, type GivenContent } from './attachment-content.ts'

export { SternpostError, type SternpostTransportOptions } from './api-client.ts'

/** What nodemailer hands over, as far as it is used here. */
export interface MailToSend {
  data: Record<string, unknown>
  message: {
    getEnvelope(): { from: string | false; to: string[] }
    getAddresses(): Record<string, { address: string; name: string }[] | undefined>
  }
}

export interface SternpostInfo {
  envelope: { from: string | false; to: string[] }
  /** `msg_…` of the first recipient. */
  messageId: string
  /** In the order of `accepted`. */
  messageIds: string[]
  accepted: string[]
  rejected: string[]
  rejectedErrors: SternpostError[]
  response: string
}

type Done<Value> = (error: Error | null, value?: Value) => void

export interface SternpostTransport {
  name: string
  version: string
  send(mail: MailToSend, done: Done<SternpostInfo>): void
  /** Whether the server is there and the key may send. */
  verify(done?: Done<true>): Promise<true>
}

const VERSION = '1.0.0'
/** Decoded, of one attachment or body. */
const MOST_BYTES = 10_485_760
const UNPROCESSABLE = 422
/** Beside "no answer": what the next recipient would be told as well. */
const FOR_ALL = [401, 403, 413, 429, 502, 503, 504]
const UNSUPPORTED = [
  'raw',
  'alternatives',
  'amp',
  'watchHtml',
  'list',
  'dkim',
  'sender',
  'priority',
  'messageId',
  'date',
  'dsn',
  'otp',
]
const UNSUPPORTED_OF_ATTACHMENT = ['raw', 'headers', 'httpHeaders', 'tls'] as const

/** Throws for a URL that is none. */
export function sternpostTransport(options: SternpostTransportOptions): SternpostTransport {
  const client = createApiClient(options)
  return {
    name: 'Sternpost',
    version: VERSION,
    send(mail, done) {
      sendToEach(mail, client).then((info) => done(null, info), done)
    },
    async verify(done) {
      const verified = verifyKey(client)
      verified.then(
        (value) => done?.(null, value),
        (thrown: Error) => done?.(thrown),
      )
      return done === undefined ? verified : true
    },
  }
}

async function sendToEach(mail: MailToSend, client: ApiClient): Promise<SternpostInfo> {
  const envelope = mail.message.getEnvelope()
  const recipients = [...new Set(envelope.to)]
  const body = await requestBody(mail)
  const id = randomUUID()
  const messageIds: string[] = []
  const accepted: string[] = []
  const rejectedErrors: SternpostError[] = []
  for (const [index, to] of recipients.entries()) {
    const [forAll] = rejectedErrors.filter(concernsAll)
    if (forAll !== undefined) {
      rejectedErrors.push(notTried(to, forAll))
      continue
    }
    try {
      const answer = await client.untilAnswered('/email/send', { ...body, to }, `${id}-${index}`)
      messageIds.push(String(answer['message_id']))
      accepted.push(to)
    } catch (thrown) {
      if (!(thrown instanceof SternpostError)) throw thrown
      thrown.recipient = to
      rejectedErrors.push(thrown)
    }
  }
  const [messageId] = messageIds
  if (messageId === undefined) {
    throw rejectedErrors[0] ?? new SternpostError('invalid_recipient', 'there is no recipient')
  }
  const rejected = recipients.filter((to) => !accepted.includes(to))
  const response = `200 accepted for ${accepted.length} of ${recipients.length}`
  return { envelope, messageId, messageIds, accepted, rejected, rejectedErrors, response }
}

function concernsAll({ responseCode }: SternpostError): boolean {
  return responseCode === undefined || isRedirect(responseCode) || FOR_ALL.includes(responseCode)
}

function notTried(to: string, { code, message, details, responseCode, recipient }: SternpostError): SternpostError {
  const facts = {
    ...(details === undefined ? {} : { details }),
    ...(responseCode === undefined ? {} : { responseCode }),
  }
  const error = new SternpostError(code, `not tried, after it failed for ${recipient}: ${message}`, facts)
  error.recipient = to
  return error
}

/** An empty request: the key is judged before it is refused, and nothing is stored or counted. */
async function verifyKey(client: ApiClient): Promise<true> {
  const { error } = await client.once('/email/preview', {}, randomUUID())
  if (error === null || error.responseCode === UNPROCESSABLE) return true
  throw error
}

/** nodemailer's message, without its recipient. */
async function requestBody({ data, message }: MailToSend): Promise<object> {
  const given = UNSUPPORTED.filter((name) => isGiven(data[name]) && !(name === 'priority' && data[name] === 'normal'))
  const addresses = message.getAddresses()
  if (given.length > 0) throw unsupported(given.join(', '))
  if ((addresses['from'] ?? []).length > 1) throw unsupported('several addresses in from')
  const replyTo = addresses['reply-to'] ?? []
  const own = data['sternpost']
  try {
    return {
      from: mailbox(addresses['from']?.[0]),
      ...(replyTo.length === 0 ? {} : { reply_to: replyTo.map(mailbox) }),
      subject: textOf(data['subject']),
      ...(await bodyParts(data)),
      ...(await attachmentsOf(data)),
      ...headersOf(data),
      // Fields of the API that nodemailer has no word for: tags, metadata, ip_pool, send_at …
      ...(typeof own === 'object' && own !== null ? own : {}),
    }
  } catch (thrown) {
    if (thrown instanceof SternpostError) throw thrown
    throw new SternpostError('ECONTENT', thrown instanceof Error ? thrown.message : String(thrown), { cause: thrown })
  }
}

/** As nodemailer sees it: what is empty is as if it were not there. */
function isGiven(value: unknown): boolean {
  return Array.isArray(value) ? value.length > 0 : Boolean(value)
}

function unsupported(what: string): SternpostError {
  return new SternpostError('EUNSUPPORTED', `the API does not take ${what}: send it by SMTP submission instead`)
}

function mailbox(address: { address: string; name: string } | undefined): string {
  if (address === undefined) throw new ContentError('from: there is no address')
  if (address.name === '') return address.address
  // A quoted string of RFC 5322 §3.2.4.
  return `"${address.name.replaceAll(/["\\]/g, String.raw`\$&`)}" <${address.address}>`
}

/** The API wants one of the two: an empty one stays where it is all that was given. */
async function bodyParts(data: Record<string, unknown>): Promise<Record<string, string>> {
  const parts = { ...(await bodyPart('html', data)), ...(await bodyPart('text', data)) }
  const isEmpty = Object.keys(parts).length === 0 && (data['text'] === '' || data['html'] === '')
  return isEmpty ? { text: '' } : parts
}

async function bodyPart(name: 'html' | 'text', data: Record<string, unknown>): Promise<Record<string, string>> {
  const part = data[name]
  if (!isGiven(part)) return {}
  return { [name]: (await readContent({ content: part }, rulesOf(name, data))).toString('utf8') }
}

function rulesOf(name: string, data: Record<string, unknown>) {
  return {
    name,
    mostBytes: MOST_BYTES,
    allowsFiles: !isGiven(data['disableFileAccess']),
    allowsUrls: !isGiven(data['disableUrlAccess']),
  }
}

interface GivenAttachment extends GivenContent, Partial<Record<(typeof UNSUPPORTED_OF_ATTACHMENT)[number], unknown>> {
  filename?: unknown
  contentType?: unknown
  cid?: unknown
}

async function attachmentsOf(data: Record<string, unknown>): Promise<object> {
  // A list, or one alone.
  const given: unknown[] = isGiven(data['attachments']) ? [data['attachments']].flat() : []
  const attachments: object[] = isGiven(data['icalEvent']) ? [await invitationOf(data)] : []
  for (const [index, attachment] of given.entries()) {
    attachments.push(await attachmentOf(attachment as GivenAttachment, rulesOf(`attachments[${index}]`, data)))
  }
  return attachments.length === 0 ? {} : { attachments }
}

/** The API sends a calendar file with a method as an invitation. Without one nodemailer's method is PUBLISH. */
async function invitationOf({ icalEvent, ...data }: Record<string, unknown>): Promise<object> {
  const { method, filename, raw, headers } = Object(icalEvent) as GivenAttachment & { method?: unknown }
  const word = isGiven(method) ? textOf(method).trim().toUpperCase() : 'PUBLISH'
  const given = { content: icalEvent, filename: isGiven(filename) ? filename : 'invite.ics', raw, headers }
  return attachmentOf(
    { ...given, contentType: `text/calendar; charset=utf-8; method=${word}` },
    rulesOf('icalEvent', data),
  )
}

async function attachmentOf(given: GivenAttachment, rules: ReturnType<typeof rulesOf>): Promise<object> {
  const { filename, contentType, cid } = given
  const refused = UNSUPPORTED_OF_ATTACHMENT.filter((name) => isGiven(given[name]))
  if (refused.length > 0) throw unsupported(`${refused.join(', ')} of ${rules.name}`)
  const content = await readContent(given, rules)
  return {
    name: typeof filename === 'string' && filename !== '' ? filename : (nameOf(given) ?? 'attachment'),
    content: content.toString('base64'),
    ...(isGiven(contentType) ? { content_type: textOf(contentType) } : {}),
    ...(isGiven(cid) ? { content_id: textOf(cid) } : {}),
  }
}

/** nodemailer takes a map, or a list of { key, value }; further fields of its own are headers too. */
function headersOf(data: Record<string, unknown>): object {
  const headers: Record<string, string> = {}
  const given = data['headers']
  const entries: unknown[] = Array.isArray(given) ? given : Object.entries(given ?? {})
  for (const entry of entries) {
    const { key, value } = Array.isArray(entry)
      ? { key: entry[0], value: entry[1] }
      : (entry as Record<string, unknown>)
    const [text, ...others] = [value].flat().map(textOf).filter(isGiven)
    if (text === undefined) continue
    // A map has one value for each name.
    if (others.length > 0 || Object.hasOwn(headers, textOf(key))) throw unsupported(`several headers ${textOf(key)}`)
    headers[textOf(key)] = text
  }
  if (isGiven(data['xMailer'])) replace(headers, 'X-Mailer', () => textOf(data['xMailer']))
  replace(headers, 'In-Reply-To', (before) => messageIdsOf(data['inReplyTo']) || messageIdsOf(before))
  replace(headers, 'References', (before) => messageIdsOf(data['references']) || messageIdsOf(before))
  return Object.keys(headers).length === 0 ? {} : { headers }
}

/** Whatever case the name was given in; an empty value is none. */
function replace(headers: Record<string, string>, name: string, valueOf: (before: string[]) => string): void {
  const before = Object.keys(headers).filter((given) => given.toLowerCase() === name.toLowerCase())
  const value = valueOf(before.map((given) => headers[given] ?? ''))
  for (const given of before) delete headers[given]
  if (value !== '') headers[name] = value
}

/** One, a list, or several in a text, with or without angle brackets. */
function messageIdsOf(value: unknown): string {
  // Angle brackets with what they hold, else what white space and commas divide.
  const ids = [value].flat().flatMap((one) => textOf(one).match(/<[^<>]*>|[^<>\s,]+/g) ?? [])
  return ids.map((id) => `<${id.replaceAll(/[<>\s]/g, '')}>`).join(' ')
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'object' && value !== null && 'value' in value) return textOf(value.value)
  return value === undefined || value === null ? '' : String(value)
}
