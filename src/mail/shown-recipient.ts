/**
 * How a recipient appears in the log, by `log.recipients`: in full, as the domain alone, or as a hash under which the
 * lines of one recipient can still be found together.
 */
import { createHash } from 'node:crypto'

export type ShownRecipients = 'full' | 'domain' | 'hash'

const HASH_CHARACTERS = 16

export function shownRecipient(address: string, domain: string, shown: ShownRecipients): string {
  if (shown === 'full') return address
  if (shown === 'domain') return domain
  return createHash('sha256').update(address).digest('hex').slice(0, HASH_CHARACTERS)
}
