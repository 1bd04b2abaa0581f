/**
 * Links that show the DNS records of one sending domain, for whoever runs its DNS and has no account here. Whoever has
 * the link sees the records and what was found of them, for seven days, and nothing else. Nothing is stored: the link
 * names domain and end, and is signed with a key of its own.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { DAY, toUnixSeconds, type Clock } from '../base/clock.ts'
import type { KeyRing } from '../base/key-ring.ts'

interface DomainLinksOptions {
  clock: Clock
  keyRing: Pick<KeyRing, 'key'>
}

const LIFETIME = 7 * DAY
const MAC_BYTES = 16
/** End in seconds, and the MAC in base64url. */
const SIGNED = /^(\d{10})-([\w-]{22})$/

export function createDomainLinks({ clock, keyRing }: DomainLinksOptions) {
  const mac = (domain: string, ends: number): string =>
    createHmac('sha256', keyRing.key('domain-link'))
      .update(`${domain} ${ends}`)
      .digest()
      .subarray(0, MAC_BYTES)
      .toString('base64url')
  return {
    /** What stands behind `/console/dns/`. */
    make(domain: string): { path: string; expiresAt: number } {
      const expiresAt = clock.now() + LIFETIME
      const ends = toUnixSeconds(expiresAt)
      return { path: `${domain}/${ends}-${mac(domain, ends)}`, expiresAt }
    },
    isValid(domain: string, signed: string): boolean {
      const [, ends = '', given = ''] = SIGNED.exec(signed) ?? []
      if (ends === '' || Number(ends) <= toUnixSeconds(clock.now())) return false
      // As text: bytes have several spellings in base64url.
      return timingSafeEqual(Buffer.from(given), Buffer.from(mac(domain, Number(ends))))
    },
  }
}
