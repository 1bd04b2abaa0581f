/**
 * DNS as the rest of Posthorn sees it: four results for a question, so that "no such name" and "no answer" are never
 * confused. Nothing here throws for an answer of the DNS.
 */

export interface MxRecord {
  priority: number
  /** Lower case, no trailing dot; '' for the null MX of RFC 7505. */
  exchange: string
}

export type DnsAnswer<Item> =
  | { kind: 'found'; records: Item[] }
  | { kind: 'no-record' } // the name exists, without a record of this type (NODATA)
  | { kind: 'no-name' } // no such name (NXDOMAIN)
  | { kind: 'no-answer'; reason: string } // timeout, SERVFAIL, REFUSED: ask again later

export interface Resolver {
  mx(name: string): Promise<DnsAnswer<MxRecord>>
  /** IPv4 (A) or IPv6 (AAAA) addresses. */
  addresses(name: string, family: 4 | 6): Promise<DnsAnswer<string>>
  /** One entry per record: its strings joined. */
  txt(name: string): Promise<DnsAnswer<string>>
  cname(name: string): Promise<DnsAnswer<string>>
}
