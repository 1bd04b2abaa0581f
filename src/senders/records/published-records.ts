/**
 * What the DNS answers for a name once everything is published as we ask for, for a DNS that answers from it.
 *
 * Errors of the store are passed on.
 */
import type { Store } from '../../store/store.ts'
import { recordsOfDomain, recordsOfTargets } from './required-records.ts'
import type { PublishedRecord, RecordFacts } from './required-records.ts'

export interface PublishedRecordsOptions {
  store: Pick<Store, 'findDomain'>
  facts: RecordFacts
  /** Of every pool. */
  addresses: string[]
}

/** `asked` in lower case. */
export async function publishedRecords(
  { store, facts, addresses }: PublishedRecordsOptions,
  asked: string,
): Promise<PublishedRecord[]> {
  const labels = asked.split('.')
  // A domain's records are below its own name: every name above the one that was asked may be the domain.
  const names = labels.slice(0, -1).map((_, index) => labels.slice(index).join('.'))
  const domains = await Promise.all(names.map((name) => store.findDomain(name)))
  const theirs = domains.flatMap((domain) => (domain === null ? [] : recordsOfDomain(domain, facts, asked)))
  return [...recordsOfTargets(facts, addresses, asked), ...theirs]
}
