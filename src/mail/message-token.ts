/**
 * Tokens that name a message, with a MAC, as lower-case base32 (content/README.md "Tokens"). Their bytes are head 1,
 * message id 16, in some a number 2, and the MAC: HMAC-SHA-256 over the purpose and all bytes in front of it,
 * truncated, compared in constant time. Forms leave no spare bits. What makes a token throws for what is no message id:
 * only our own come here. What reads one gives undefined for text that is no token of ours; capitals are lowered, since
 * servers change the case of local parts. RFC 4648 §6, RFC 2104.
 */
import { timingSafeEqual, type KeyObject } from 'node:crypto'
import { RFC_4648 } from '../base/base32.ts'
import { hmacSha256 } from '../base/hmac.ts'
import { identifierFromBytes, identifierToBytes } from '../base/identifier.ts'

/** 30 bytes, 48 characters: RFC 5321 §4.5.3.1.1 allows a local part 64 octets. */
const IN_MAIL = { hasNumber: false, macBytes: 13 }
/** In what leads back to us; 35 bytes, 56 characters. The number is that of a link or a list, and zero for an open. */
const IN_LINK = { hasNumber: true, macBytes: 16 }
const FORMS = { bounce: IN_MAIL, complaint: IN_MAIL, open: IN_LINK, click: IN_LINK, unsubscribe: IN_LINK }

/** Version 1 in the high four bits, key id 0 in the low four. */
const HEAD = 0x10
const MESSAGE_ID_BYTES = 16
const NUMBER_BYTES = 2
const BITS_PER_CHARACTER = 5

/** The envelope sender of a message, the same on every attempt: VERP. */
export function returnPathAddress(messageId: string, returnPathDomain: string, bounceKey: KeyObject): string {
  return `b-${returnPathToken(messageId, bounceKey)}@${returnPathDomain}`
}

export function returnPathToken(messageId: string, key: KeyObject): string {
  return makeToken('bounce', messageId, 0, key)
}

/** The message id of a genuine token, without `b-` and domain. */
export function readReturnPathToken(text: string, key: KeyObject): string | undefined {
  return readToken('bounce', text, key)?.messageId
}

/** For Message-ID, X-Sternpost-Ref and the address for complaints. */
export function complaintToken(messageId: string, key: KeyObject): string {
  return makeToken('complaint', messageId, 0, key)
}

export function readComplaintToken(text: string, key: KeyObject): string | undefined {
  return readToken('complaint', text, key)?.messageId
}

// `<token@domain>`, `b-token@domain` or the token alone.
const NAMING_TOKEN = /^<?(?:[a-z]-)?([a-z2-7]{48})(?:@[^@]*)?$/i

/**
 * The message that a Message-ID, an X-Sternpost-Ref or a return path of ours names, genuine or not: for who may look at
 * the message itself.
 */
export function namedMessageId(text: string): string | undefined {
  const bytes = RFC_4648.decode(NAMING_TOKEN.exec(text)?.[1]?.toLowerCase() ?? '')
  return bytes?.[0] === HEAD ? identifierFromBytes('msg', bytes.subarray(1, 1 + MESSAGE_ID_BYTES)) : undefined
}

/** `/o/`. */
export function openToken(messageId: string, key: KeyObject): string {
  return makeToken('open', messageId, 0, key)
}

export function readOpenToken(text: string, key: KeyObject): string | undefined {
  const read = readToken('open', text, key)
  return read?.number === 0 ? read.messageId : undefined
}

/** `/c/`. */
export function clickToken(messageId: string, linkNumber: number, key: KeyObject): string {
  return makeToken('click', messageId, linkNumber, key)
}

export function readClickToken(text: string, key: KeyObject): { messageId: string; linkNumber: number } | undefined {
  const read = readToken('click', text, key)
  return read && { messageId: read.messageId, linkNumber: read.number }
}

/** `/u/` and `u-…@`; list 0 is that of the message's content. */
export function unsubscribeToken(messageId: string, listNumber: number, key: KeyObject): string {
  return makeToken('unsubscribe', messageId, listNumber, key)
}

export function readUnsubscribeToken(
  text: string,
  key: KeyObject,
): { messageId: string; listNumber: number } | undefined {
  const read = readToken('unsubscribe', text, key)
  return read && { messageId: read.messageId, listNumber: read.number }
}

function makeToken(purpose: keyof typeof FORMS, messageId: string, number: number, key: KeyObject): string {
  const id = identifierToBytes('msg', messageId)
  if (id === undefined) throw new Error(`not a message id: ${JSON.stringify(messageId)}`)
  const { hasNumber, macBytes } = FORMS[purpose]
  const signedBytes = 1 + MESSAGE_ID_BYTES + (hasNumber ? NUMBER_BYTES : 0)
  const bytes = Buffer.allocUnsafe(signedBytes + macBytes)
  bytes[0] = HEAD
  bytes.set(id, 1)
  if (hasNumber) bytes.writeUInt16BE(number, 1 + MESSAGE_ID_BYTES)
  bytes.write(hmacSha256(key, purpose, bytes.subarray(0, signedBytes)), signedBytes, macBytes, 'hex')
  return RFC_4648.encode(bytes)
}

/** `number` is 0 in a form without one. */
function readToken(
  purpose: keyof typeof FORMS,
  text: string,
  key: KeyObject,
): { messageId: string; number: number } | undefined {
  const { hasNumber, macBytes } = FORMS[purpose]
  const signedBytes = 1 + MESSAGE_ID_BYTES + (hasNumber ? NUMBER_BYTES : 0)
  const length = ((signedBytes + macBytes) * 8) / BITS_PER_CHARACTER
  // Before any work: what somebody sends may be long.
  const bytes = text.length === length ? RFC_4648.decode(text.toLowerCase()) : undefined
  if (bytes === undefined) return undefined
  const signed = bytes.subarray(0, signedBytes)
  const mac = Buffer.from(hmacSha256(key, purpose, signed), 'hex').subarray(0, macBytes)
  if (!timingSafeEqual(bytes.subarray(signedBytes), mac) || signed[0] !== HEAD) return undefined
  const messageId = identifierFromBytes('msg', signed.subarray(1, 1 + MESSAGE_ID_BYTES))
  return { messageId, number: hasNumber ? signed.readUInt16BE(1 + MESSAGE_ID_BYTES) : 0 }
}
