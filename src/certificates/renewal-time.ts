/**
 * When a certificate is renewed: at a random minute behind two thirds of its life, or in the window that its authority
 * suggests (ACME Renewal Information, RFC 9773). Asking never rejects: without an answer the time stays as it is.
 */
import { X509Certificate } from 'node:crypto'
import { HOUR, type Clock } from '../base/clock.ts'
import type { AcmeRequest } from './acme-client.ts'
import type { IssuedRecord } from '../store/records/certificate-records.ts'

/** Share of its life after which a certificate is renewed. */
const RENEWED_AFTER = 2 / 3
/** So that not all servers of the world ask at the full hour; a short life has less of it. */
const MOST_SPREAD = HOUR
const SPREAD_SHARE = 1 / 12
/** No suggestion leads beyond this share of a life, and nothing to more than one renewal in so long. */
const LATEST_SHARE = 0.9
const LEAST_BETWEEN = 6 * HOUR
/** Between two questions about one certificate, unless the authority says otherwise (RFC 9773 §4.3.2). */
const ASKED_EVERY = 6 * HOUR
const LEAST_PAUSE = HOUR
const MOST_PAUSE = 24 * HOUR

type Life = Pick<X509Certificate, 'validFromDate' | 'validToDate'>

/** Of one that is issued `now`: its life may have begun long ago, and then two thirds of what is left of it count. */
export function plannedRenewal(parsed: Life, now: number): number {
  const { from, life } = lifeOf(parsed)
  const planned = from + life * RENEWED_AFTER + Math.random() * Math.min(MOST_SPREAD, life * SPREAD_SHARE)
  return Math.floor(Math.max(planned, now + Math.min(LEAST_BETWEEN, (from + life - now) * RENEWED_AFTER)))
}

function lifeOf(parsed: Life): { from: number; life: number } {
  const [from, to] = [parsed.validFromDate.getTime(), parsed.validToDate.getTime()]
  return { from, life: to - from }
}

/** `from` and `to` in Unix milliseconds. */
interface SuggestedWindow {
  from: number
  to: number
}

export function createRenewalTimes(clock: Clock, load: () => Promise<AcmeRequest>) {
  const nextQuestions = new Map<string, number>()
  // Each question that nobody answers takes its time, from orders too.
  let silentUntil = 0
  return {
    /** Another time than the planned one; null: the planned one holds. */
    async suggested({ name, issued }: IssuedRecord, directory: string): Promise<number | null> {
      const now = clock.now()
      if (Math.max(silentUntil, nextQuestions.get(name) ?? 0) > now) return null
      nextQuestions.set(name, now + ASKED_EVERY)
      try {
        const ask = await load()
        const request: AcmeRequest = (url) =>
          ask(url).catch((thrown: unknown) => {
            silentUntil = now + LEAST_PAUSE
            throw thrown
          })
        const { renewalInfo } = JSON.parse((await request(directory)).body) as Record<string, unknown>
        const identifier = certificateIdOf(issued.chain)
        if (typeof renewalInfo !== 'string' || identifier === null) return null
        const { body, retryAfter } = await request(`${renewalInfo}/${identifier}`)
        const pause = Math.min(MOST_PAUSE, Math.max(LEAST_PAUSE, retryAfter ?? ASKED_EVERY))
        nextQuestions.set(name, now + pause)
        const window = windowIn(body)
        if (window === null || (issued.renewAt >= window.from && issued.renewAt <= window.to)) return null
        if (window.to <= now) nextQuestions.set(name, now + Math.max(pause, LEAST_BETWEEN))
        const suggested = window.from + Math.floor(Math.random() * (window.to - window.from))
        const { from, life } = lifeOf(new X509Certificate(issued.chain))
        return Math.floor(Math.max(from + LEAST_BETWEEN, Math.min(from + life * LATEST_SHARE, suggested)))
      } catch {
        return null
      }
    },
  }
}

/** null: it is not what RFC 9773 §4.2 says, so nothing follows from it. */
function windowIn(body: string): SuggestedWindow | null {
  const { suggestedWindow } = JSON.parse(body) as { suggestedWindow?: { start?: unknown; end?: unknown } }
  const [from, to] = [Date.parse(String(suggestedWindow?.start)), Date.parse(String(suggestedWindow?.end))]
  return Number.isFinite(from) && Number.isFinite(to) && from <= to ? { from, to } : null
}

/** In DER, as hex: the extension authorityKeyIdentifier (RFC 5280 §4.2.1.1), up to the length of its keyIdentifier. */
const KEY_IDENTIFIER = /0603551d23(?:0101..)?04..30..80(..)/

/** What RFC 9773 §4.1 calls a certificate by: key of its issuer and serial number; null: it names no key. */
export function certificateIdOf(chain: string): string | null {
  const parsed = new X509Certificate(chain)
  const hex = parsed.raw.toString('hex')
  const found = KEY_IDENTIFIER.exec(hex)
  if (found === null) return null
  const start = found.index + found[0].length
  const key = Buffer.from(hex.slice(start, start + 2 * Number.parseInt(found[1] ?? '', 16)), 'hex')
  const serial = Buffer.from(evenDigits(parsed.serialNumber), 'hex')
  // Whole numbers of DER are signed: one that begins with a set bit has a zero before it.
  const signed = (serial[0] ?? 0) >= FIRST_NEGATIVE ? Buffer.concat([Buffer.of(0), serial]) : serial
  return `${key.toString('base64url')}.${signed.toString('base64url')}`
}

const FIRST_NEGATIVE = 0x80

function evenDigits(hex: string): string {
  return hex.length % 2 === 0 ? hex : `0${hex}`
}
