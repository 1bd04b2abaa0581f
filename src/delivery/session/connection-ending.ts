/**
 * Why a connection ends, and what that says of its path.
 *
 * An end for a reason that is told with a message, or is our own, is none that the path is to blame for. Never throws.
 */
import type { ConnectionNote } from '../../egress/shaping/shaping.ts'
import { readSmtpReply, type SmtpReply } from '../../mail/reply/smtp-reply.ts'
import type { RawReply } from './reply-reader.ts'
import type { SmtpWire, WireEnd } from './smtp-wire.ts'

/** The host ends the connection, whatever it answers (RFC 5321 §3.8). */
export const CLOSING_CODE = 421

/** A 421 in the place of an answer about a message is told with that message, and is no `closing`. */
export type ConnectionEnd = Extract<ConnectionNote, { kind: 'ended-well' | 'dropped' | 'closing' }>

export interface ConnectionEnding {
  explain(reason: string): void
  /** The reply does not fit its command: the host is out of step. */
  outOfStep(reply: RawReply, command: string): void
  /** The wire has ended; `isBlameless`: what it waited for was ours to give. */
  of(end: WireEnd, connection: { isBusy: boolean; isBlameless: boolean; delivered: number }): ConnectionEnd
}

export function createConnectionEnding(wire: Pick<SmtpWire, 'end'>): ConnectionEnding {
  let closing: SmtpReply | null = null
  let isExplained = false
  return {
    explain(reason) {
      isExplained = true
      wire.end(reason)
    },
    outOfStep(reply, command) {
      const read = readSmtpReply(reply.text)
      if (reply.code === CLOSING_CODE && read !== undefined) closing = read
      const what = command === 'DATA' ? 'no 354 in the place of the answer to DATA' : `unexpected answer to ${command}`
      wire.end(`${what}: ${reply.text}`)
    },
    of(end, { isBusy, isBlameless, delivered }) {
      if (end.reply?.code === CLOSING_CODE) closing = end.reply
      if (closing !== null) return { kind: 'closing', reply: closing }
      if (isBusy && !isExplained && !isBlameless) return { kind: 'dropped', reason: end.reason }
      return { kind: 'ended-well', delivered }
    },
  }
}
