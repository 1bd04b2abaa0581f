/**
 * The records of a domain as a piece of a zone file for BIND, to paste or include (http/README.md "Domains"). Pure.
 *
 * Names are whole, so it means the same wherever it is put; everything else is said in comments. RFC 1035 §5.1.
 */
import type { DomainRecord } from '../../store/records/sender-records.ts'
import { requiredRecords, spfRecordValue, type RecordFacts, type RequiredRecord } from './required-records.ts'

export function zoneFile(domain: DomainRecord, facts: RecordFacts): string {
  const records = requiredRecords(domain, facts).filter((record) => record.via === undefined)
  const sections = records.flatMap((record) => [
    `; ${titleOf(record, domain)}`,
    lineOf(record),
    ...insteadOf(record, facts),
  ])
  return [`; ${domain.name}: records for sending through ${facts.hostname}`, ...sections].join('\n') + '\n'
}

function titleOf({ purpose, required, selector }: RequiredRecord, domain: DomainRecord): string {
  const role = domain.keys.find((key) => key.selector === selector)?.role
  if (role === 'next') return `${purpose}: the next key, needed before it can take over`
  if (role === 'retiring') return `${purpose}: the key before, for mail that is still on its way`
  return `${purpose}: ${required ? 'required' : 'recommended'}`
}

function lineOf({ name, ttl, type, value, value_chunks: chunks = [] }: RequiredRecord): string {
  const data = type === 'CNAME' ? `${value}.` : stringsOf(chunks)
  return `${name}. ${ttl} IN ${type} ${data}`
}

/** Several strings are one record: the parentheses say so to people too. */
function stringsOf(chunks: readonly string[]): string {
  const quoted = chunks.map((chunk) => `"${chunk.replace(QUOTE_OR_BACKSLASH, '\\$&')}"`)
  return quoted.length > 1 ? `( ${quoted.join(' ')} )` : quoted.join('')
}

// A quotation mark or a backslash.
const QUOTE_OR_BACKSLASH = /["\\]/g

/** Where a CNAME cannot be: the same effect by the owner's own records. */
function insteadOf({ purpose, name, ttl }: RequiredRecord, facts: RecordFacts): string[] {
  if (purpose !== 'return_path') return []
  return [
    '; in place of the CNAME, where it is not possible:',
    `; ${name}. ${ttl} IN MX 10 ${facts.hostname}.`,
    `; ${name}. ${ttl} IN TXT "${spfRecordValue(facts)}"`,
  ]
}
