/**
 * An erased address as it stays on the suppression list: a keyed hash, by which it is known again when somebody sends
 * to it, and by which nobody can read it (messages/README.md "Privacy"). No address looks like it: it has no `@`.
 */
import { createHmac } from 'node:crypto'
import type { Database } from 'better-sqlite3'

/**
 * For statements: a text in which an address is replaced however its letters are written, also as part of a URL or of
 * JSON; null stays null.
 */
function withoutAddress(text: unknown, address: unknown, replacement: unknown): string | null {
  if (typeof text !== 'string') return null
  const plain = String(address)
  const inJson = JSON.stringify(plain).slice(1, -1)
  const forms = new Set([plain, encodeURIComponent(plain), plain.replace('@', '%40'), inJson])
  // Every character that means something in an expression.
  const literals = [...forms].map((form) => form.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
  return text.replace(new RegExp(literals.join('|'), 'gi'), () => String(replacement))
}

/** Statements call it by this name. Without a key no address was ever erased: nothing equals ''. */
export function addErasedAddress(database: Database, key: Uint8Array | undefined): void {
  database.function('without_address', { deterministic: true }, withoutAddress)
  database.function('erased_address', { deterministic: true }, (address: unknown) =>
    key === undefined ? '' : `erased:${createHmac('sha256', key).update(String(address)).digest('hex')}`,
  )
}

/** Whether any address was erased: a hash for each recipient is only made then. Between two letters, by the index. */
export const FIND_ERASED = `select 1 from suppressions where address >= 'erased:' and address < 'erased;' limit 1`

/**
 * The form in which two addresses are compared: the domain in lower case, the local part as it is (http/README.md
 * "Suppressions").
 */
export function comparableAddress(address: string): string {
  const at = address.lastIndexOf('@')
  return address.slice(0, at) + address.slice(at).toLowerCase()
}
