/**
 * A transport for nodemailer that sends through Sternpost's HTTP API (clients/README.md "nodemailer"). No dependency:
 * it stands alone, with `attachment-content.ts`, to be copied into an app.
 *
 *   const transporter = nodemailer.createTransport(sternpostTransport({ url: 'https://mail.example.net', apiKey }))
 *   const { messageId } = await transporter.sendMail({ from, to, subject, html })
 *
 * Each recipient (to, cc, bcc) gets a message of their own. 429, 503 and connections that fail are tried again, with an
 * Idempotency-Key, so that nothing is sent twice. Fails with SternpostError when nobody's message was accepted; else
 * those that were not are in `rejected` and `rejectedErrors`. What the API cannot send is refused, never left out.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout as wait } from 'node:timers/promises'
import { ContentError, nameOf, readContent, type GivenContent } from './attachment-content.ts'

export interface SternpostTransportOptions {
  /** Base address: `https://mail.example.net`, with or without /v1. */
  url: string
  apiKey: string
  /** Further tries after the first one. */
  retries?: number
  /** Milliseconds: the longest wait between two tries; a Retry-After beyond it fails at once. */
  longestWait?: number
}

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

export class SternpostError extends Error {
  override name = 'SternpostError'
  /** An error code of the API, or ECONNECTION, ECONTENT, EUNSUPPORTED. */
  code: string
  details: string | undefined
  /** HTTP status; undefined: there was no answer. */
  responseCode: number | undefined
  /** Whom it was about. */
  recipient: string | undefined

  constructor(code: string, message: string, facts: { details?: string; responseCode?: number; cause?: unknown } = {}) {
    super(message, { cause: facts.cause })
    this.code = code
    this.details = facts.details
    this.responseCode = facts.responseCode
  }
}

const VERSION = '1.0.0'
const RETRIES = 4
const LONGEST_WAIT = 60_000
const FIRST_WAIT = 500
const ANSWER_WITHIN = 60_000
const MILLISECONDS_PER_SECOND = 1_000
/** Decoded, of one attachment or body. */
const MOST_BYTES = 10_485_760
const AGAIN = [429, 503]
const UNPROCESSABLE = 422
const UNSUPPORTED = [
  'raw',
  'alternatives',
  'amp',
  'watchHtml',
  'icalEvent',
  'list',
  'dkim',
  'sender',
  'priority',
  'messageId',
  'date',
  'dsn',
]

export function sternpostTransport(options: SternpostTransportOptions): SternpostTransport {
  const poster = createPoster(options)
  return {
    name: 'Sternpost',
    version: VERSION,
    send(mail, done) {
      sendToEach(mail, poster).then((info) => done(null, info), done)
    },
    async verify(done) {
      const verified = verifyKey(poster)
      verified.then(
        (value) => done?.(null, value),
        (thrown: Error) => done?.(thrown),
      )
      return done === undefined ? verified : true
    },
  }
}

interface PostResult {
  error: SternpostError | null
  /** Milliseconds. */
  retryAfter: number | null
  answer: Record<string, unknown>
}

type Poster = ReturnType<typeof createPoster>

/** Paths are below /v1. */
function createPoster(options: SternpostTransportOptions) {
  const { apiKey, retries = RETRIES, longestWait = LONGEST_WAIT } = options
  // The version segment that a base address may end in.
  const base = options.url.replace(/\/*(?:\/v1)?\/*$/, '')

  const headers = { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json' }

  async function once(path: string, body: object, idempotencyKey: string): Promise<PostResult> {
    try {
      const response = await fetch(`${base}/v1${path}`, {
        method: 'POST',
        headers: { ...headers, 'Idempotency-Key': idempotencyKey },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(ANSWER_WITHIN),
      })
      const answer = readAnswer(await response.text())
      const retryAfter = secondsOf(response.headers.get('Retry-After'))
      return { error: answer['success'] === true ? null : refusal(response.status, answer), retryAfter, answer }
    } catch (cause) {
      const text = `no answer from ${base}: ${cause instanceof Error ? cause.message : String(cause)}`
      return { error: new SternpostError('ECONNECTION', text, { cause }), retryAfter: null, answer: {} }
    }
  }

  /** With further tries; fails with SternpostError. */
  async function untilAnswered(path: string, body: object, idempotencyKey: string): Promise<Record<string, unknown>> {
    for (let tried = 0; ; tried++) {
      const { error, retryAfter, answer } = await once(path, body, idempotencyKey)
      if (error === null) return answer
      const mayRepeat = error.responseCode === undefined || AGAIN.includes(error.responseCode)
      const pause = retryAfter ?? FIRST_WAIT * 2 ** tried
      if (!mayRepeat || tried === retries || pause > longestWait) throw error
      await wait(pause)
    }
  }

  return { once, untilAnswered }
}

async function sendToEach(mail: MailToSend, poster: Poster): Promise<SternpostInfo> {
  const envelope = mail.message.getEnvelope()
  const recipients = [...new Set(envelope.to)]
  const body = await requestBody(mail)
  const id = randomUUID()
  const messageIds: string[] = []
  const accepted: string[] = []
  const rejectedErrors: SternpostError[] = []
  for (const [index, to] of recipients.entries()) {
    try {
      const answer = await poster.untilAnswered('/email/send', { ...body, to }, `${id}-${index}`)
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

/** An empty request: the key is judged before it is refused, and nothing is stored or counted. */
async function verifyKey(poster: Poster): Promise<true> {
  const { error } = await poster.once('/email/preview', {}, randomUUID())
  if (error === null || error.responseCode === UNPROCESSABLE) return true
  throw error
}

/** nodemailer's message, without its recipient. */
async function requestBody({ data, message }: MailToSend): Promise<object> {
  const given = UNSUPPORTED.filter((name) => data[name] !== undefined && data[name] !== null)
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
      ...(await bodyPart('html', data)),
      ...(await bodyPart('text', data)),
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

function unsupported(what: string): SternpostError {
  return new SternpostError('EUNSUPPORTED', `the API does not take ${what}: send it by SMTP submission instead`)
}

function mailbox(address: { address: string; name: string } | undefined): string {
  if (address === undefined) throw new ContentError('from: there is no address')
  if (address.name === '') return address.address
  // A quoted string of RFC 5322 §3.2.4.
  return `"${address.name.replaceAll(/["\\]/g, String.raw`\$&`)}" <${address.address}>`
}

async function bodyPart(name: 'html' | 'text', data: Record<string, unknown>): Promise<Record<string, string>> {
  const part = data[name]
  if (part === undefined || part === null) return {}
  return { [name]: (await readContent({ content: part }, rulesOf(name, data))).toString('utf8') }
}

function rulesOf(name: string, data: Record<string, unknown>) {
  return {
    name,
    mostBytes: MOST_BYTES,
    allowsFiles: data['disableFileAccess'] !== true,
    allowsUrls: data['disableUrlAccess'] !== true,
  }
}

interface GivenAttachment extends GivenContent {
  filename?: unknown
  contentType?: unknown
  cid?: unknown
}

async function attachmentsOf(data: Record<string, unknown>): Promise<object> {
  const given: unknown = data['attachments']
  if (!Array.isArray(given) || given.length === 0) return {}
  const attachments = []
  for (const [index, attachment] of given.entries()) {
    attachments.push(await attachmentOf(attachment as GivenAttachment, rulesOf(`attachments[${index}]`, data)))
  }
  return { attachments }
}

async function attachmentOf(given: GivenAttachment, rules: ReturnType<typeof rulesOf>): Promise<object> {
  const { filename, contentType, cid } = given
  const content = await readContent(given, rules)
  return {
    name: typeof filename === 'string' && filename !== '' ? filename : (nameOf(given) ?? 'attachment'),
    content: content.toString('base64'),
    ...(typeof contentType === 'string' ? { content_type: contentType } : {}),
    ...(typeof cid === 'string' ? { content_id: cid } : {}),
  }
}

/** nodemailer takes a map, or a list of { key, value }; the references of an answer are headers too. */
function headersOf(data: Record<string, unknown>): object {
  const headers: Record<string, string> = {}
  const given = data['headers']
  const entries: unknown[] = Array.isArray(given) ? given : Object.entries(given ?? {})
  for (const entry of entries) {
    const { key, value } = Array.isArray(entry)
      ? { key: entry[0], value: entry[1] }
      : (entry as Record<string, unknown>)
    // A map has one value for each name.
    if (Array.isArray(value) || Object.hasOwn(headers, textOf(key))) throw unsupported(`several headers ${textOf(key)}`)
    headers[textOf(key)] = textOf(value)
  }
  if (data['inReplyTo'] !== undefined) headers['In-Reply-To'] = textOf(data['inReplyTo'])
  const references = data['references']
  if (references !== undefined) headers['References'] = [references].flat().map(textOf).join(' ')
  return Object.keys(headers).length === 0 ? {} : { headers }
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'object' && value !== null && 'value' in value) return textOf(value.value)
  return value === undefined || value === null ? '' : String(value)
}

/** Empty for what is no answer of Sternpost: a proxy speaks, and its status says the rest. */
function readAnswer(text: string): Record<string, unknown> {
  try {
    const answer: unknown = JSON.parse(text)
    return typeof answer === 'object' && answer !== null ? { ...answer } : {}
  } catch {
    // No JSON.
    return {}
  }
}

function refusal(status: number, answer: Record<string, unknown>): SternpostError {
  const error = typeof answer['error'] === 'object' && answer['error'] !== null ? { ...answer['error'] } : {}
  const { code, message, details } = error as Record<string, unknown>
  const facts = { responseCode: status, ...(details === undefined ? {} : { details: String(details) }) }
  const text = [message ?? 'The server refused.', details].filter((part) => part !== undefined).join(' ')
  return new SternpostError(String(code ?? 'internal_error'), text, facts)
}

/** Milliseconds; null: there is no number of seconds (the API sends no dates). */
function secondsOf(header: string | null): number | null {
  const seconds = Number(header ?? 'none')
  return Number.isFinite(seconds) ? seconds * MILLISECONDS_PER_SECOND : null
}
