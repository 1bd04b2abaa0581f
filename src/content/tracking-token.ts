/**
 * The tokens in what leads back to us: open (`/o/`), click (`/c/`) and unsubscribe (`/u/`, `u-…@`) (content/README.md
 * "Tokens").
 *
 * 56 characters of lower-case base32 over head 1, message id 16, number 2 and MAC 16 bytes: 280 bits, so no spare bits
 * exist. The number is that of a link or a list, and zero for an open. MAC = HMAC-SHA-256 over purpose, head, message
 * id and number, truncated, compared in constant time; each purpose has its own key as well. No token holds an address
 * or a URL. Reading text that is no token of ours gives undefined; capitals are lowered, since servers change the case
 * of local parts. RFC 4648 §6, RFC 2104.
 */
import { timingSafeEqual } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { decodeBase32, encodeBase32, RFC_4648 } from '../base/base32.ts'
import { hmacSha256 } from '../base/hmac.ts'
import { identifierFromBytes, identifierToBytes } from '../base/identifier.ts'

type TokenPurpose = 'open' | 'click' | 'unsubscribe'

export interface ClickFacts {
  messageId: string
  linkNumber: number
}

export interface UnsubscribeFacts {
  messageId: string
  /** 0: the list of the message's content. */
  listNumber: number
}

interface NamedByToken {
  messageId: string
  number: number
}

/** As many base32 characters as 35 bytes need. */
const TOKEN_LENGTH = 56
/** Version 1 in the high four bits, key id 0 in the low four. */
const HEAD = 0x10
const MESSAGE_ID_BYTES = 16
const NUMBER_BYTES = 2
const MAC_BYTES = 16
const SIGNED_BYTES = 1 + MESSAGE_ID_BYTES + NUMBER_BYTES

/** Throws for what is no message id, as the two below: only our own ids come here. */
export function openToken(messageId: string, key: KeyObject): string {
  return makeToken('open', messageId, 0, key)
}

export function clickToken(messageId: string, linkNumber: number, key: KeyObject): string {
  return makeToken('click', messageId, linkNumber, key)
}

export function unsubscribeToken(messageId: string, listNumber: number, key: KeyObject): string {
  return makeToken('unsubscribe', messageId, listNumber, key)
}

/** The message id of a genuine token. */
export function readOpenToken(text: string, key: KeyObject): string | undefined {
  const read = readToken('open', text, key)
  return read?.number === 0 ? read.messageId : undefined
}

export function readClickToken(text: string, key: KeyObject): ClickFacts | undefined {
  const read = readToken('click', text, key)
  return read === undefined ? undefined : { messageId: read.messageId, linkNumber: read.number }
}

export function readUnsubscribeToken(text: string, key: KeyObject): UnsubscribeFacts | undefined {
  const read = readToken('unsubscribe', text, key)
  return read === undefined ? undefined : { messageId: read.messageId, listNumber: read.number }
}

function makeToken(purpose: TokenPurpose, messageId: string, number: number, key: KeyObject): string {
  const id = identifierToBytes('msg', messageId)
  if (id === undefined) throw new Error(`not a message id: ${JSON.stringify(messageId)}`)
  const bytes = Buffer.allocUnsafe(SIGNED_BYTES + MAC_BYTES)
  bytes[0] = HEAD
  bytes.set(id, 1)
  bytes.writeUInt16BE(number, 1 + MESSAGE_ID_BYTES)
  bytes.write(hmacSha256(key, purpose, bytes.subarray(0, SIGNED_BYTES)), SIGNED_BYTES, MAC_BYTES, 'hex')
  return encodeBase32(bytes, RFC_4648)
}

function readToken(purpose: TokenPurpose, text: string, key: KeyObject): NamedByToken | undefined {
  // Before any work: what somebody sends may be long.
  const bytes = text.length === TOKEN_LENGTH ? decodeBase32(text.toLowerCase(), RFC_4648) : undefined
  if (bytes === undefined) return undefined
  const signed = bytes.subarray(0, SIGNED_BYTES)
  const isGenuine = timingSafeEqual(bytes.subarray(SIGNED_BYTES), macOf(purpose, signed, key))
  if (!isGenuine || signed[0] !== HEAD) return undefined
  const messageId = identifierFromBytes('msg', signed.subarray(1, 1 + MESSAGE_ID_BYTES))
  return { messageId, number: signed.readUInt16BE(1 + MESSAGE_ID_BYTES) }
}

function macOf(purpose: TokenPurpose, signed: Uint8Array, key: KeyObject): Buffer {
  return Buffer.from(hmacSha256(key, purpose, signed), 'hex').subarray(0, MAC_BYTES)
}
