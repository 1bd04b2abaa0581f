/**
 * Identifiers as they are stored: the 16 bytes behind the prefix (base/identifier.ts). The first six are the time of
 * their making, so they are in its order.
 */
import { identifierToBytes, type IdentifierPrefix } from '../../../base/identifier.ts'

const IDENTIFIER_BYTES = 16
const TIME_BYTES = 6
const MOST_TIME = 2 ** (8 * TIME_BYTES) - 1

/** The bytes of an identifier that our own code made; throws for anything else. */
export function storedIdentifier(prefix: IdentifierPrefix, text: string): Buffer {
  const bytes = identifierToBytes(prefix, text)
  if (bytes === undefined) throw new TypeError(`not an identifier with the prefix ${prefix}_: ${JSON.stringify(text)}`)
  return bytes
}

/** What a statement finds by an identifier as somebody gave it: a text that is none names nothing. */
export function getNamed<Row>(find: { get(id: Buffer): Row | undefined }, prefix: IdentifierPrefix, text: string) {
  const bytes = identifierToBytes(prefix, text)
  return bytes === undefined ? undefined : find.get(bytes)
}

/** When it was made, Unix milliseconds. */
export const identifierTime = (stored: Buffer): number => stored.readUIntBE(0, TIME_BYTES)

/** The lowest identifier that can be made at this time. */
export function firstIdentifierAt(time: number): Buffer {
  const bytes = Buffer.alloc(IDENTIFIER_BYTES)
  bytes.writeUIntBE(Math.min(Math.max(Math.floor(time), 0), MOST_TIME), 0, TIME_BYTES)
  return bytes
}
