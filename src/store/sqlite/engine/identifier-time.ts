/**
 * The time inside a stored identifier: its first six bytes, so that identifiers are in the order of their making
 * (base/identifier.ts).
 */
const IDENTIFIER_BYTES = 16
const TIME_BYTES = 6
const MOST_TIME = 2 ** (8 * TIME_BYTES) - 1

/** When it was made, Unix milliseconds. */
export function identifierTime(stored: Buffer): number {
  return stored.readUIntBE(0, TIME_BYTES)
}

/** The lowest identifier that can be made at this time. */
export function firstIdentifierAt(time: number): Buffer {
  const bytes = Buffer.alloc(IDENTIFIER_BYTES)
  bytes.writeUIntBE(Math.min(Math.max(Math.floor(time), 0), MOST_TIME), 0, TIME_BYTES)
  return bytes
}
