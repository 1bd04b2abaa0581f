/**
 * A submitted message (RFC 6409) -> what acceptance wants to know of it, and the bytes to send (inbound/README.md
 * "Submission"). Only the form of its options is judged here; acceptance judges the values as those of the API.
 * Which fields are cut out, and which name a sender beside From: mail/header-rules.ts. They are cut out of the memory
 * that is given; else pure. What cannot be read is a problem in a sentence.
 */
import { decodeWords } from 'postal-mime'
import { MOST_ADDRESS_INPUT_CHARACTERS, parseAddress, type ParsedAddress } from '../../mail/address.ts'
import { readStrictFields, type HeaderField, type PlacedField } from '../../mail/header-fields.ts'
import { headerRule } from '../../mail/header-rules.ts'
import type { Mailbox } from '../../mail/message.ts'
import type { SubmissionRequest } from '../../messages/accept/send-request.ts'

type Read<Value> = ({ ok: true } & Value) | { ok: false; problem: string }

/** Each at most once. */
const CONTROLS = ['x-idempotency-key', 'x-tags', 'x-pool', 'x-track']

// A quoted string of RFC 5322 §3.2.4, or a comment of §3.2.2 that stands by itself and has nothing in it that may be
// taken for an address.
const QUOTED_OR_COMMENT = /"(?:[^"\\]|\\.)*"|(?<![^ ])\(([^()<>@\\"\p{Cc}]*)\)(?![^ <])/gu
// An at sign, and in the same address a dot behind it.
const WHOLE_ADDRESS = /@[^<>\s]*\./
const HOW_TO_COMPLETE = ': write a whole address at a sending domain, as msmtp does with set_from_header on'
// Every control character.
const CONTROL = /\p{Cc}+/gu

export function messageFromMime(message: Buffer): Read<{ request: Omit<SubmissionRequest, 'recipients'> }> {
  const fields = readStrictFields(message)
  if (typeof fields === 'string') return { ok: false, problem: fields }
  const from = readFrom(fields)
  if (!from.ok) return from
  const named = readSenders(fields)
  if (!named.ok) return named
  const read = readControls(fields.filter(({ name }) => CONTROLS.includes(name)))
  if (!read.ok) return read
  const subject = decoded(fields.find(({ name }) => name === 'subject')?.value ?? '')
  const raw = withoutRemoved(message, fields)
  return {
    ok: true,
    request: { ...read.controls, from: mailboxText(from.mailbox), senders: named.senders, subject, raw },
  }
}

function readFrom(fields: readonly HeaderField[]): Read<{ mailbox: Mailbox }> {
  const [from, ...others] = fields.filter(({ name }) => name === 'from')
  if (from === undefined) return { ok: false, problem: 'the message has no From header' }
  if (others.length > 0) return { ok: false, problem: 'the message has more than one From header' }
  // Whether its domain may send is judged by acceptance.
  const parsed = readMailbox(from.value)
  if (parsed.ok) return parsed
  // Programs of the host itself, as cron, name a user alone, or one at the host's short name.
  const fix = WHOLE_ADDRESS.test(from.value) ? '' : HOW_TO_COMPLETE
  return { ok: false, problem: `From: ${parsed.problem}${fix}` }
}

/** Of each field that names a sender beside From, the domain. */
function readSenders(fields: readonly HeaderField[]): Read<{ senders: NonNullable<SubmissionRequest['senders']> }> {
  const senders: NonNullable<SubmissionRequest['senders']> = []
  for (const { name, value } of fields) {
    if (headerRule(name) !== 'sender') continue
    const isSecond = name === 'sender' && senders.some(({ field }) => field === name)
    if (isSecond) return { ok: false, problem: 'the message has more than one Sender header' }
    const parsed = readMailbox(value)
    if (!parsed.ok) return { ok: false, problem: `${name}: ${parsed.problem}` }
    senders.push({ field: name, domain: parsed.domain })
  }
  return { ok: true, senders }
}

/** An address without a name has that of a comment: the older form (RFC 5322 §3.4), as cron writes it. */
function readMailbox(value: string): ParsedAddress {
  if (value.length > MOST_ADDRESS_INPUT_CHARACTERS) return parseAddress(value, { allowReservedNames: true })
  let comment = ''
  // RFC 5322 §3.2.2: where a field is folded a tab means no more than a space, and no address may have one.
  const text = value.replaceAll('\t', ' ').replace(QUOTED_OR_COMMENT, (found, inside?: string) => {
    if (inside === undefined) return found
    comment = inside.trim()
    return ''
  })
  const parsed = parseAddress(text, { allowReservedNames: true })
  if (!parsed.ok || parsed.mailbox.name !== null || comment === '') return parsed
  return { ...parsed, mailbox: { ...parsed.mailbox, name: comment } }
}

type Controls = Pick<SubmissionRequest, 'tags' | 'ipPool' | 'track' | 'idempotencyKey'>

function readControls(fields: readonly HeaderField[]): Read<{ controls: Controls }> {
  const refuse = (name: string, problem: string) => ({ ok: false as const, problem: `${name}: ${problem}` })
  const values = new Map<string, string>()
  for (const { name, value } of fields) {
    if (values.has(name)) return refuse(name, 'is given twice')
    if (value === '') return refuse(name, 'is empty')
    values.set(name, value)
  }
  const tags = readTags(values.get('x-tags'))
  if (tags === null) return refuse('x-tags', 'must be key=value, several separated by commas, no key twice')
  const track = readTrack(values.get('x-track'))
  if (track === null) return refuse('x-track', 'must be opens, clicks, opens,clicks or none')
  const ipPool = values.get('x-pool')
  return { ok: true, controls: { tags, track, ipPool, idempotencyKey: values.get('x-idempotency-key') } }
}

/** null: not of the form. */
function readTags(text: string | undefined): Controls['tags'] | null {
  if (text === undefined) return undefined
  const tags = new Map<string, string>()
  for (const tag of listOf(decodeWords(text))) {
    // A tag's value may hold further equals signs.
    const [, name = '', value = ''] = /^([^=]+)=(.*)$/u.exec(tag) ?? []
    const key = name.trim()
    if (key === '' || tags.has(key)) return null
    tags.set(key, value.trim())
  }
  return Object.fromEntries(tags)
}

function readTrack(text: string | undefined): Controls['track'] | null {
  if (text === undefined) return undefined
  const kinds = listOf(text.toLowerCase())
  if (kinds.length === 1 && kinds[0] === 'none') return { opens: false, clicks: false }
  if (!kinds.every((kind) => kind === 'opens' || kind === 'clicks')) return null
  return { opens: kinds.includes('opens'), clicks: kinds.includes('clicks') }
}

function listOf(text: string): string[] {
  return text.split(',').map((entry) => entry.trim())
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

/** What stands in front of a field that goes moves up, in place: the body, which may be large, stays where it is. */
function withoutRemoved(message: Buffer, fields: readonly PlacedField[]): Buffer {
  const removed = fields.filter(({ name }) => headerRule(name) === 'removed' || CONTROLS.includes(name))
  let start = removed.at(-1)?.end ?? 0
  for (const [index, field] of [...removed.entries()].toReversed()) {
    const from = removed[index - 1]?.end ?? 0
    start -= field.start - from
    message.copyWithin(start, from, field.start)
  }
  return message.subarray(start)
}
