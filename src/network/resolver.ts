/**
 * DNS as the rest of Sternpost sees it: four results for a question, so that "no such name" and "no answer" are never
 * confused. Nothing here throws for an answer of the DNS.
 */
import type { TlsaRecord } from './tlsa.ts'

export interface MxRecord {
  priority: number
  /** Lower case, no trailing dot; '' for the null MX of RFC 7505. */
  exchange: string
}

/**
 * Hosts, addresses and names of one answer; the rest helps nobody, and costs whoever reads it. TXT and TLSA records are
 * never cut: without some of them the others would say something else.
 */
export const MOST_RECORDS = 100

/** By name too, so that the set of a domain reads the same at each lookup. */
export function bestFirst(records: readonly MxRecord[]): MxRecord[] {
  return records
    .toSorted((left, right) => left.priority - right.priority || compareText(left.exchange, right.exchange))
    .slice(0, MOST_RECORDS)
}

function compareText(left: string, right: string): number {
  return left < right ? -1 : Number(left > right)
}

/** What only a resolver knows that reads whole answers. */
export interface AnswerFacts {
  /** DNSSEC validated it (the AD bit of a resolver that is trusted, RFC 4035 §3.2.3). */
  isSecure: boolean
  /** Of the record that ends first; of an answer without records by the zone's own word (RFC 2308 §5). */
  ttlMilliseconds: number
  /** Where the aliases of the name lead to; the name itself without any. */
  canonicalName: string
}

export type DnsAnswer<Item> =
  | { kind: 'found'; records: Item[]; facts?: AnswerFacts }
  | { kind: 'no-record'; facts?: AnswerFacts } // the name exists, without a record of this type (NODATA)
  | { kind: 'no-name'; facts?: AnswerFacts } // no such name (NXDOMAIN)
  | { kind: 'no-answer'; reason: string; isBogus?: true } // timeout, SERVFAIL, REFUSED, bogus: ask again later

export interface Resolver {
  /** Best first. */
  mx(name: string): Promise<DnsAnswer<MxRecord>>
  addresses(name: string, family: 4 | 6): Promise<DnsAnswer<string>>
  /** One entry per record: its strings joined. */
  txt(name: string): Promise<DnsAnswer<string>>
  cname(name: string): Promise<DnsAnswer<string>>
  /** Host names of an address; the name as in `1.2.0.192.in-addr.arpa`. */
  ptr(name: string): Promise<DnsAnswer<string>>
}

/** Its answers carry facts, and those that say `isSecure` were validated. */
export interface ValidatingResolver extends Resolver {
  tlsa(name: string): Promise<DnsAnswer<TlsaRecord>>
}

/** What a question of each type is answered with. */
export interface RecordTypes {
  MX: MxRecord
  A: string
  AAAA: string
  TXT: string
  CNAME: string
  PTR: string
  TLSA: TlsaRecord
}
export type QuestionType = keyof RecordTypes

/** What stands in front of a resolver: it is led each question, and asks or answers by itself. */
export type Front = <Type extends QuestionType>(
  type: Type,
  name: string,
  ask: () => Promise<DnsAnswer<RecordTypes[Type]>>,
) => Promise<DnsAnswer<RecordTypes[Type]>>

export function withFront(resolver: ValidatingResolver, front: Front): ValidatingResolver
export function withFront(resolver: Resolver, front: Front): Resolver
export function withFront(resolver: Resolver | ValidatingResolver, front: Front): Resolver {
  return {
    mx: (name) => front('MX', name, () => resolver.mx(name)),
    addresses: (name, family) => front(family === 4 ? 'A' : 'AAAA', name, () => resolver.addresses(name, family)),
    txt: (name) => front('TXT', name, () => resolver.txt(name)),
    cname: (name) => front('CNAME', name, () => resolver.cname(name)),
    ptr: (name) => front('PTR', name, () => resolver.ptr(name)),
    ...('tlsa' in resolver && { tlsa: (name: string) => front('TLSA', name, () => resolver.tlsa(name)) }),
  }
}
