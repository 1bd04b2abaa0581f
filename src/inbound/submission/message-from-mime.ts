/**
 * A submitted message (RFC 6409) -> what acceptance wants to know of it, and the bytes to send (inbound/README.md
 * "Submission"). Return-Path is cut out: the last server writes it (RFC 5321 §4.4). Pure; what cannot be read is a
 * problem in a sentence.
 */
import { decodeWords } from 'postal-mime'
import { parseAddress } from '../../mail/address.ts'
import type { Mailbox } from '../../mail/message.ts'
import type { SubmissionRequest } from '../../messages/accept/send-request.ts'
import { readControls } from './control-headers.ts'
import { readHeaderFields, type PlacedField } from './header-fields.ts'

type SubmittedMessage = { ok: true; request: Omit<SubmissionRequest, 'recipients'> } | { ok: false; problem: string }

const CONTROLS = ['x-idempotency-key', 'x-tags', 'x-pool', 'x-track']
const REMOVED = new Set(['bcc', 'resent-bcc', 'return-path', ...CONTROLS])

// Every control character.
const CONTROL = /\p{Cc}+/gu

export function messageFromMime(message: Buffer): SubmittedMessage {
  const header = readHeaderFields(message)
  if (!header.ok) return header
  const { fields } = header
  const from = readFrom(fields)
  if (!from.ok) return from
  const controls = readControls(fields.filter(({ name }) => CONTROLS.includes(name)))
  if (!controls.ok) return controls
  return {
    ok: true,
    request: {
      ...controls.controls,
      from: mailboxText(from.mailbox),
      subject: decoded(fields.find(({ name }) => name === 'subject')?.value ?? ''),
      raw: without(
        message,
        fields.filter(({ name }) => REMOVED.has(name)),
      ),
    },
  }
}

function readFrom(fields: readonly PlacedField[]): { ok: true; mailbox: Mailbox } | { ok: false; problem: string } {
  const [from, ...others] = fields.filter(({ name }) => name === 'from')
  if (from === undefined) return { ok: false, problem: 'the message has no From header' }
  if (others.length > 0) return { ok: false, problem: 'the message has more than one From header' }
  // Whether its domain may send is judged by acceptance.
  const parsed = parseAddress(from.value, { allowReservedNames: true })
  return parsed.ok ? parsed : { ok: false, problem: `From: ${parsed.problem}` }
}

/** In a form that is read back as the same mailbox. */
function mailboxText({ name, address }: Mailbox): string {
  if (name === null) return address
  return `"${decoded(name).replace(/["\\]/g, '\\$&')}" <${address}>`
}

/** RFC 2047; what is not well-formed inside becomes a replacement character. */
function decoded(text: string): string {
  return decodeWords(text).replace(CONTROL, ' ').toWellFormed()
}

function without(message: Buffer, removed: readonly PlacedField[]): Buffer {
  if (removed.length === 0) return message
  const kept: Buffer[] = []
  let position = 0
  for (const { start, end } of removed) {
    kept.push(message.subarray(position, start))
    position = end
  }
  return Buffer.concat([...kept, message.subarray(position)])
}
