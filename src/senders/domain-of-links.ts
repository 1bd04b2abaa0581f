/** Whose name below a sending domain is: its records and its tracked links are there. Errors of the store are passed on. */
import type { DomainRecord } from '../store/records/sender-records.ts'
import type { Store } from '../store/store.ts'

/** The domain whose tracked links lead to this name; null: there is none. */
export async function domainOfLinks(store: Pick<Store, 'findDomain'>, name: string): Promise<DomainRecord | null> {
  const domains = await Promise.all(namesFrom(name).map((each) => store.findDomain(each)))
  return domains.find((domain) => domain?.trackingDomain === name) ?? null
}

/** A domain's records are below its own name: every name above the one that was asked may be the domain. */
export function namesFrom(asked: string): string[] {
  const labels = asked.split('.')
  return labels.slice(0, -1).map((_, index) => labels.slice(index).join('.'))
}
