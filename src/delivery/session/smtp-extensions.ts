/**
 * What a host announces after EHLO, and the commands of a transaction that make use of it. Pure. Without an
 * announcement nothing is asked for: no extension is ever tried in hope. RFC 5321 §4.1.1, RFC 1870, RFC 2920, RFC 3030, RFC
 * 3461, RFC 6152, RFC 6531.
 */
import { isIP } from 'node:net'

export interface SmtpEnvelope {
  from: string
  to: string
  /** Comes back in a delivery status notification (RFC 3461 §4.4). */
  envelopeId: string
  /** An address of envelope or header is not ASCII: only a host with SMTPUTF8 takes it (RFC 6531). */
  needsUtf8: boolean
  /** The body has bytes beyond US-ASCII (RFC 6152). */
  is8Bit: boolean
}

export interface SmtpExtensions {
  isPipelining: boolean
  hasStartTls: boolean
  has8BitMime: boolean
  hasChunking: boolean
  hasSmtpUtf8: boolean
  hasDsn: boolean
  hasSize: boolean
  /** Of one message; null: the host names no limit. */
  mostBytes: number | null
}

// A number of bytes that can be counted with.
const SIZE = /^SIZE(?: (\d{1,15}))?$/

/** `reply`: the lines of the answer to EHLO. */
export function readExtensions(reply: string): SmtpExtensions {
  const lines = reply
    .split('\n')
    .slice(1)
    .map((line) => line.slice(4).trim().toUpperCase())
  const words = new Set(lines.map((line) => line.split(' ', 1)[0] ?? ''))
  const size = lines.map((line) => SIZE.exec(line)?.[1]).find((bytes) => bytes !== undefined)
  // 0: a limit that is not told (RFC 1870 §4).
  const mostBytes = Number(size ?? 0)
  return {
    isPipelining: words.has('PIPELINING'),
    hasStartTls: words.has('STARTTLS'),
    has8BitMime: words.has('8BITMIME'),
    hasChunking: words.has('CHUNKING'),
    hasSmtpUtf8: words.has('SMTPUTF8'),
    hasDsn: words.has('DSN'),
    hasSize: words.has('SIZE'),
    mostBytes: mostBytes > 0 ? mostBytes : null,
  }
}

/** Of a host that knows no EHLO. */
export const NO_EXTENSIONS = readExtensions('')

/** An address literal has no name, so it needs brackets (RFC 5321 §4.1.4). */
export function helloName(hostname: string): string {
  const family = isIP(hostname)
  if (family === 0) return hostname
  return family === 6 ? `[IPv6:${hostname}]` : `[${hostname}]`
}

export function mailCommand(envelope: SmtpEnvelope, sizeBytes: number, extensions: SmtpExtensions): string {
  const { hasSize, has8BitMime, hasSmtpUtf8, hasDsn } = extensions
  const size = hasSize ? ` SIZE=${sizeBytes}` : ''
  const body = has8BitMime && envelope.is8Bit ? ' BODY=8BITMIME' : ''
  const utf8 = hasSmtpUtf8 && envelope.needsUtf8 ? ' SMTPUTF8' : ''
  const dsn = hasDsn ? ` RET=HDRS ENVID=${envelope.envelopeId}` : ''
  return `MAIL FROM:<${envelope.from}>${utf8}${size}${body}${dsn}`
}

export function recipientCommand(envelope: SmtpEnvelope, { hasDsn }: SmtpExtensions): string {
  return `RCPT TO:<${envelope.to}>${hasDsn ? ' NOTIFY=FAILURE,DELAY' : ''}`
}
