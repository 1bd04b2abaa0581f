/**
 * A record as the DNS would give it, and how names are compared. Pure.
 */

export interface PublishedRecord {
  type: 'TXT' | 'CNAME' | 'MX'
  name: string
  value: string
}

/** DNS names are the same in any case and with or without the last dot. */
export function plain(name: string): string {
  return name.toLowerCase().replace(/\.$/, '') // one dot at the very end
}
