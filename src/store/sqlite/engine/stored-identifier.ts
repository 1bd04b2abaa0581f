/** Identifiers as they are stored: the 16 bytes behind the prefix (base/identifier.ts). */
import { identifierToBytes, type IdentifierPrefix } from '../../../base/identifier.ts'

/** The bytes of an identifier that our own code made; throws for anything else. */
export function storedIdentifier(prefix: IdentifierPrefix, text: string): Buffer {
  const bytes = identifierToBytes(prefix, text)
  if (bytes === undefined) throw new TypeError(`not an identifier with the prefix ${prefix}_: ${JSON.stringify(text)}`)
  return bytes
}
