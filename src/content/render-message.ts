/**
 * From stored content and the facts of one message to the bytes that are sent: fill in, compose, sign
 * (content/README.md "The road, and its files"). The same input gives the same bytes on every attempt: time,
 * identifiers and boundaries come from the facts. The promise rejects only for a fault of ours or an unusable DKIM key.
 * RFC 5322 §3.6.
 */
import type { RenderFacts } from '../mail/message.ts'
import { complaintToken } from '../mail/message-token.ts'
import { composeMessage } from './compose-message.ts'
import { signMessage, SIGNATURE_ROOM, type Signer, type UnsignedMessage } from './mime/dkim.ts'
import {
  composedFields,
  dateField,
  messageIdField,
  messageUrls,
  ownFields,
  type FieldsInput,
  type RenderSettings,
} from './message-fields.ts'
import { fieldName } from '../mail/header-fields.ts'
import { bodiesOf, submittedMailOf, type MessageBodies, type PreparedContent } from './prepare-content.ts'
import type { SubmittedMail } from './mime/submitted-mail.ts'

/** With which the rest of a submitted mail begins. */
const EMPTY_LINE = '\r\n'

export interface ComposeInput {
  content: PreparedContent
  facts: RenderFacts
  /** Host name of the envelope sender's domain. */
  returnPath: string
  /** Scheme and host of links that lead back to us, without a slash at the end. */
  trackingBaseUrl: string
  settings: RenderSettings
}

export interface RenderInput extends ComposeInput {
  /** At least one; the first one's signature is the topmost. */
  signers: readonly Signer[]
}

export async function renderMessage(input: RenderInput): Promise<Buffer> {
  const { unsigned } = await composeUnsigned(input, input.signers.length * SIGNATURE_ROOM)
  return signMessage(unsigned, input.signers, input.facts.acceptedAt)
}

/** With so many free bytes in front. */
export async function composeUnsigned(input: ComposeInput, room = 0) {
  const { content, facts, returnPath, trackingBaseUrl: baseUrl, settings } = input
  const urls = messageUrls({ messageId: facts.messageId, baseUrl, keys: settings.keys })
  const complaint = complaintToken(facts.messageId, settings.keys.complaint)
  const fieldsInput = { content: content.stored, facts, complaint, returnPath, urls, settings }
  const mail = submittedMailOf(content, urls)
  if (mail !== null) return composed(null, withOwnFields(mail, fieldsInput, room))
  const bodies = bodiesOf(content, facts.variables, urls)
  const fields = composedFields(fieldsInput, bodies.subject)
  const parts = { ...bodies, fields, treeOf: content.treeOf, seed: facts.messageId, room }
  return composed(bodies, await composeMessage(parts))
}

/** `bodies`: what is in it, filled in; of a submitted mail nothing is known apart. `bytes`: unsigned. */
function composed(bodies: MessageBodies | null, unsigned: UnsignedMessage) {
  return { bodies, unsigned, bytes: unsigned.buffer.subarray(unsigned.start) }
}

/** Ours on top, in place of others of the same names; Date and Message-ID only where there are none. */
function withOwnFields({ fields, rest }: SubmittedMail, input: FieldsInput, room: number): UnsignedMessage {
  const own = ownFields(input)
  const ownNames = new Set(own.map(fieldName))
  const theirs = fields.filter((field) => !ownNames.has(fieldName(field)))
  const names = new Set(theirs.map(fieldName))
  const missing = [
    ...(names.has('date') ? [] : [dateField(input.facts)]),
    ...(names.has('message-id') ? [] : [messageIdField(input)]),
  ]
  const header = Buffer.from([...missing, ...own, ...theirs].join(''), 'latin1')
  const buffer = Buffer.concat([Buffer.alloc(room), header, rest])
  return { buffer, start: room, bodyStart: room + header.length + EMPTY_LINE.length, runs: null }
}
