/**
 * A token that names a message, with a MAC, as lower-case base32 (content/README.md "Tokens").
 *
 * Its bytes are head 1, message id 16, in some forms a number 2, and the MAC: HMAC-SHA-256 over the purpose and all
 * bytes in front of it, truncated, compared in constant time. Forms leave no spare bits. Text that is no token of ours
 * is read as undefined; capitals are lowered, since servers change the case of local parts. RFC 4648 §6, RFC 2104.
 */
import { timingSafeEqual, type KeyObject } from 'node:crypto'
import { RFC_4648 } from '../base/base32.ts'
import { hmacSha256 } from '../base/hmac.ts'
import { identifierFromBytes, identifierToBytes } from '../base/identifier.ts'

interface TokenForm {
  hasNumber: boolean
  macBytes: number
}

type TokenPurpose = 'bounce' | 'complaint' | 'open' | 'click' | 'unsubscribe'

interface NamedByToken {
  messageId: string
  /** 0 in a form without a number. */
  number: number
}

/** Version 1 in the high four bits, key id 0 in the low four. */
const HEAD = 0x10
const MESSAGE_ID_BYTES = 16
const NUMBER_BYTES = 2
const BITS_PER_CHARACTER = 5

/** Throws for what is no message id: only our own ids come here. */
export function makeToken(
  form: TokenForm,
  purpose: TokenPurpose,
  { messageId, number }: NamedByToken,
  key: KeyObject,
): string {
  const id = identifierToBytes('msg', messageId)
  if (id === undefined) throw new Error(`not a message id: ${JSON.stringify(messageId)}`)
  const signedBytes = signedBytesOf(form)
  const bytes = Buffer.allocUnsafe(signedBytes + form.macBytes)
  bytes[0] = HEAD
  bytes.set(id, 1)
  if (form.hasNumber) bytes.writeUInt16BE(number, 1 + MESSAGE_ID_BYTES)
  bytes.write(hmacSha256(key, purpose, bytes.subarray(0, signedBytes)), signedBytes, form.macBytes, 'hex')
  return RFC_4648.encode(bytes)
}

export function readToken(
  form: TokenForm,
  purpose: TokenPurpose,
  text: string,
  key: KeyObject,
): NamedByToken | undefined {
  const signedBytes = signedBytesOf(form)
  const length = ((signedBytes + form.macBytes) * 8) / BITS_PER_CHARACTER
  // Before any work: what somebody sends may be long.
  const bytes = text.length === length ? RFC_4648.decode(text.toLowerCase()) : undefined
  if (bytes === undefined) return undefined
  const signed = bytes.subarray(0, signedBytes)
  const mac = Buffer.from(hmacSha256(key, purpose, signed), 'hex').subarray(0, form.macBytes)
  if (!timingSafeEqual(bytes.subarray(signedBytes), mac) || signed[0] !== HEAD) return undefined
  const messageId = identifierFromBytes('msg', signed.subarray(1, 1 + MESSAGE_ID_BYTES))
  return { messageId, number: form.hasNumber ? signed.readUInt16BE(1 + MESSAGE_ID_BYTES) : 0 }
}

function signedBytesOf({ hasNumber }: TokenForm): number {
  return 1 + MESSAGE_ID_BYTES + (hasNumber ? NUMBER_BYTES : 0)
}
