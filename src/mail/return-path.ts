/**
 * The two tokens that name a message in mail itself: VERP (`b-<token>@<return path>`, the envelope sender) and
 * complaint (Message-ID, X-Sternpost-Ref).
 *
 * 48 characters of lower-case base32 over head 1, message id 16 and MAC 13 bytes: 240 bits, so no spare bits exist.
 * MAC = HMAC-SHA-256 over purpose, head and message id, truncated, compared in constant time; each purpose has its own
 * key as well. Reading text that is no token of ours gives undefined; capitals are lowered, since servers change the
 * case of local parts. RFC 4648 §6, RFC 2104, RFC 5321 §4.5.3.1.1 (a local part has at most 64 octets).
 */
import { timingSafeEqual } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { decodeBase32, encodeBase32, RFC_4648 } from '../base/base32.ts'
import { hmacSha256 } from '../base/hmac.ts'
import { identifierFromBytes, identifierToBytes } from '../base/identifier.ts'

type TokenPurpose = 'bounce' | 'complaint'

/** As many base32 characters as 30 bytes need. */
const TOKEN_LENGTH = 48
/** Version 1 in the high four bits, key id 0 in the low four. */
const HEAD = 0x10
const MESSAGE_ID_BYTES = 16
const MAC_BYTES = 13
const SIGNED_BYTES = 1 + MESSAGE_ID_BYTES

/** The envelope sender of a message, the same on every attempt. */
export function returnPathAddress(messageId: string, returnPathDomain: string, bounceKey: KeyObject): string {
  return `b-${returnPathToken(messageId, bounceKey)}@${returnPathDomain}`
}

/** Throws for what is no message id: only our own ids come here. */
export function returnPathToken(messageId: string, key: KeyObject): string {
  return makeToken('bounce', messageId, key)
}

export function complaintToken(messageId: string, key: KeyObject): string {
  return makeToken('complaint', messageId, key)
}

/** The message id of a genuine VERP token, without `b-` and domain. */
export function readReturnPathToken(text: string, key: KeyObject): string | undefined {
  return readToken('bounce', text, key)
}

export function readComplaintToken(text: string, key: KeyObject): string | undefined {
  return readToken('complaint', text, key)
}

function makeToken(purpose: TokenPurpose, messageId: string, key: KeyObject): string {
  const id = identifierToBytes('msg', messageId)
  if (id === undefined) throw new Error(`not a message id: ${JSON.stringify(messageId)}`)
  const bytes = Buffer.allocUnsafe(SIGNED_BYTES + MAC_BYTES)
  bytes[0] = HEAD
  bytes.set(id, 1)
  bytes.write(hmacSha256(key, purpose, bytes.subarray(0, SIGNED_BYTES)), SIGNED_BYTES, MAC_BYTES, 'hex')
  return encodeBase32(bytes, RFC_4648)
}

function readToken(purpose: TokenPurpose, text: string, key: KeyObject): string | undefined {
  const token = text.toLowerCase()
  // Before any work: what somebody sends may be long.
  const bytes = token.length === TOKEN_LENGTH ? decodeBase32(token, RFC_4648) : undefined
  if (bytes === undefined) return undefined
  const signed = bytes.subarray(0, SIGNED_BYTES)
  if (!timingSafeEqual(bytes.subarray(SIGNED_BYTES), macOf(purpose, signed, key))) return undefined
  return bytes[0] === HEAD ? identifierFromBytes('msg', bytes.subarray(1, SIGNED_BYTES)) : undefined
}

function macOf(purpose: TokenPurpose, signed: Uint8Array, key: KeyObject): Buffer {
  return Buffer.from(hmacSha256(key, purpose, signed), 'hex').subarray(0, MAC_BYTES)
}
