/** What statements about erased addresses call by name (verbs/tools/stored-address.ts). */
import type { Database } from 'better-sqlite3'
import { erasedAddress, formsOfAddress } from '../../verbs/tools/stored-address.ts'

/** `key`: left out, no address was ever erased. */
export function addAddressFunctions(database: Database, key: Uint8Array | undefined): void {
  database.function('without_address', { deterministic: true }, withoutAddress)
  database.function('erased_address', { deterministic: true }, (address: unknown) =>
    erasedAddress(String(address), key),
  )
}

/** null stays null. */
function withoutAddress(text: unknown, address: unknown, replacement: unknown): string | null {
  if (typeof text !== 'string') return null
  return text.replace(new RegExp(formsOfAddress(String(address)), 'gi'), () => String(replacement))
}
