/**
 * Requests of the transport to Sternpost's HTTP API, tried again with the same Idempotency-Key while that helps
 * (clients/README.md "nodemailer"). Stands alone, beside `nodemailer-transport.ts`.
 */
import { setTimeout as wait } from 'node:timers/promises'

export interface SternpostTransportOptions {
  /** Base address: `https://mail.example.net`, with or without /v1. The final one: no redirect is followed. */
  url: string
  apiKey: string
  /** Further tries after the first one. */
  retries?: number
  /** Milliseconds: the longest wait between two tries; a Retry-After beyond it fails at once. */
  longestWait?: number
  /** Milliseconds for an answer, counted anew while a large request makes its way. */
  answerWithin?: number
}

export class SternpostError extends Error {
  override name = 'SternpostError'
  /** An error code of the API, or ECONNECTION, ECONTENT, EREDIRECT, EUNSUPPORTED. */
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

const RETRIES = 4
const LONGEST_WAIT = 60_000
const FIRST_WAIT = 500
/** Whatever Retry-After says. */
const LEAST_WAIT = 100
const ANSWER_WITHIN = 60_000
const MILLISECONDS_PER_SECOND = 1_000
const CONFLICT = 409
const AGAIN = [429, 503]
const FIRST_REDIRECT = 300
const LAST_REDIRECT = 399
/** Of a request that is longer, each piece that was taken counts as a sign of life. */
const PIECE_BYTES = 65_536
/** What the system takes and has not sent yet, and the bytes in a millisecond of a slow line. */
const MOST_BUFFERED = 4_194_304
const SLOW_LINE = 64

export interface PostResult {
  error: SternpostError | null
  /** Milliseconds. */
  retryAfter: number | null
  answer: Record<string, unknown>
}

export type ApiClient = ReturnType<typeof createApiClient>

/** Paths are below /v1. Throws for a URL that is none. */
export function createApiClient(options: SternpostTransportOptions) {
  const { apiKey, retries = RETRIES, longestWait = LONGEST_WAIT, answerWithin = ANSWER_WITHIN } = options
  if (!/^https?:$/.test(URL.parse(options.url)?.protocol ?? '')) {
    throw new Error(`url: ${JSON.stringify(options.url)} is no http or https URL`)
  }
  // The version segment that a base address may end in.
  const base = options.url.replace(/\/*(?:\/v1)?\/*$/, '')

  const headers = { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json' }

  async function once(path: string, body: object, idempotencyKey: string): Promise<PostResult> {
    const bytes = Buffer.from(JSON.stringify(body))
    const patience = startPatience(answerWithin)
    try {
      const response = await fetch(`${base}/v1${path}`, {
        method: 'POST',
        headers: { ...headers, 'Idempotency-Key': idempotencyKey, 'Content-Length': String(bytes.length) },
        body: bytes.length <= PIECE_BYTES ? bytes : inPieces(bytes, patience.renew),
        duplex: 'half',
        // Pieces cannot be sent again.
        redirect: 'manual',
        signal: patience.signal,
      })
      const answer = readAnswer(await response.text())
      const retryAfter = secondsOf(response.headers.get('Retry-After'))
      if (isRedirect(response.status)) return { error: redirection(response), retryAfter, answer }
      return { error: answer['success'] === true ? null : refusal(response.status, answer), retryAfter, answer }
    } catch (cause) {
      const error = new SternpostError('ECONNECTION', `no answer from ${base}: ${reasonOf(cause)}`, { cause })
      return { error, retryAfter: null, answer: {} }
    } finally {
      patience.end()
    }
  }

  /** With further tries; fails with SternpostError. */
  async function untilAnswered(path: string, body: object, idempotencyKey: string): Promise<Record<string, unknown>> {
    let waitedForFirst = 0
    for (let tried = 0; ;) {
      const { error, retryAfter, answer } = await once(path, body, idempotencyKey)
      if (error === null) return answer
      const pause = Math.max(LEAST_WAIT, retryAfter ?? FIRST_WAIT * 2 ** tried)
      if (isUnderWay(error, retryAfter)) {
        // An earlier try of ours that is still being worked on: its answer is worth a wait, and costs no try.
        waitedForFirst += pause
        if (waitedForFirst > longestWait) throw error
      } else {
        const mayRepeat = error.responseCode === undefined || AGAIN.includes(error.responseCode)
        if (!mayRepeat || tried === retries || pause > longestWait) throw error
        tried += 1
      }
      await wait(pause)
    }
  }

  return { once, untilAnswered }
}

/** A signal that ends what shows no life for so long. */
function startPatience(milliseconds: number) {
  const controller = new AbortController()
  const end = (): void => controller.abort(new Error(`nothing within ${milliseconds / MILLISECONDS_PER_SECOND} s`))
  let timer = setTimeout(end, milliseconds)
  return {
    signal: controller.signal,
    /** Again, and for so much more. */
    renew(more: number): void {
      if (controller.signal.aborted) return
      clearTimeout(timer)
      timer = setTimeout(end, milliseconds + more)
    },
    /** Sends no more of what was answered already. */
    end(): void {
      clearTimeout(timer)
      controller.abort()
    },
  }
}

async function* inPieces(bytes: Buffer, renew: (more: number) => void): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
    renew(Math.min(at, MOST_BUFFERED) / SLOW_LINE)
    yield bytes.subarray(at, at + PIECE_BYTES)
  }
}

/** Of the other conflicts none comes with a Retry-After. */
function isUnderWay({ responseCode, code }: SternpostError, retryAfter: number | null): boolean {
  return responseCode === CONFLICT && code === 'conflict' && retryAfter !== null
}

/** `fetch failed` stands for what went wrong below it. */
function reasonOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown)
  const { cause } = thrown
  if (!(cause instanceof Error)) return thrown.message
  if (cause.message !== '') return cause.message
  return 'code' in cause ? String(cause.code) : thrown.message
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

export function isRedirect(status: number): boolean {
  return status >= FIRST_REDIRECT && status <= LAST_REDIRECT
}

function redirection({ status, headers }: Response): SternpostError {
  const location = headers.get('Location')
  const facts = { responseCode: status, ...(location === null ? {} : { details: location }) }
  return new SternpostError('EREDIRECT', `${status} leads to ${location ?? 'nowhere'}: give the final URL`, facts)
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
