/**
 * How a recipient appears in the log, by `log.recipients`: in full, as the domain alone, or as a hash under which the
 * lines of one recipient can still be found together. So does every address that others wrote: the sender of a mail that
 * came in, and what a reply repeats.
 */
import { createHash } from 'node:crypto'

export type ShownRecipients = 'full' | 'domain' | 'hash'

const HASH_CHARACTERS = 16

export function shownRecipient(address: string, domain: string, shown: ShownRecipients): string {
  if (shown === 'full') return address
  if (shown === 'domain') return domain
  return createHash('sha256').update(address).digest('hex').slice(0, HASH_CHARACTERS)
}

/** An address as it was on the wire. The null sender, and a name without a domain, stay as they are. */
export function shownAddress(address: string, shown: ShownRecipients): string {
  const at = address.lastIndexOf('@')
  return at === -1 ? address : shownRecipient(address, address.slice(at + 1), shown)
}

// Starts where a word does, so that a long one is looked at once.
const ADDRESS = /(?<![^\s<>()[\]"',;:])[^\s<>()[\]"',;:@]+@[^\s<>()[\]"',;:@]*[^\s<>()[\]"',;:@.]/g

/** The text of a reply, with each address in it as `shown` says. */
export function shownReply(text: string, shown: ShownRecipients): string {
  return shown === 'full' ? text : text.replace(ADDRESS, (address) => shownAddress(address, shown))
}
