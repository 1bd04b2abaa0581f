/** What sending domains work with; `domains.ts` puts it together. */
import type { Clock } from '../base/clock.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { Logger } from '../base/logger.ts'
import type { Resolver } from '../network/resolver.ts'
import type { DomainRecord, DomainTracking } from '../store/records/sender-records.ts'
import type { Store } from '../store/store.ts'
import type { StateSettings } from './records/domain-state.ts'
import type { RecordFacts } from './records/required-records.ts'
import type { LinkCertificates } from './verification/check-aliases.ts'

export interface DomainParts {
  store: Store
  clock: Clock
  /** Lookups take real time. */
  realClock: Clock
  keyRing: KeyRing
  resolver: Resolver
  logger: Logger
  onEvents: () => void
  settings: DomainsSettings
  /** Of new domains. */
  tracking: DomainTracking
  /** null: no limit. */
  mostDomains: number | null
  /** null: whoever ends TLS in front of us has them. */
  linkCertificates: LinkCertificates | null
  facts: RecordFacts
  poolNames: () => string[]
  ipsOf: (domain: DomainRecord) => string[]
  /** One change or recorded check of a domain at a time. */
  inTurn: InTurn
}

/** The part `domains` of sternpost.yaml. */
interface DomainsSettings extends StateSettings {
  targets: RecordFacts['targets']
  dmarc_report_address: string
  /** `bits`: of new RSA keys; `ed25519`: a second key beside the RSA one. */
  dkim: { bits: number; ed25519: boolean }
}

/**
 * Work on one domain that belongs together is not mixed with others. Each piece starts when the one before has ended,
 * well or not; its result and its error are its caller's.
 */
type InTurn = <Result>(key: string, work: () => Promise<Result>) => Promise<Result>

export function createInTurn(): InTurn {
  const last = new Map<string, Promise<unknown>>()
  return async (key, work) => {
    const before = last.get(key)
    const running = before === undefined ? work() : before.then(work, work)
    last.set(key, running)
    try {
      return await running
    } finally {
      if (last.get(key) === running) last.delete(key)
    }
  }
}
