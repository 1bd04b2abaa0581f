/**
 * The real parts around sending domains and keys: a SQLite store, egress pools, a DNS server; only the clock is moved
 * by hand.
 */
import type { Test } from 'tap'
import { HOUR, MINUTE } from '../../src/base/clock.ts'
import { createKeyRing, MASTER_KEY_BYTES, type KeyRing } from '../../src/base/key-ring.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createLiveConfiguration, type ReplaceableConfiguration } from '../../src/config/live-configuration.ts'
import { createEgress, type Egress } from '../../src/egress/egress.ts'
import type { Warmup } from '../../src/egress/moves/warmup.ts'
import { createDnsResolver } from '../../src/network/dns-resolver.ts'
import { createDomains, type Domains } from '../../src/senders/domains.ts'
import type { LinkCertificates } from '../../src/senders/verification/check-aliases.ts'
import type { Store } from '../../src/store/store.ts'
import { ipSettings, poolOf, warmed, withPools } from '../egress/egress-parts.ts'
import { freshLocation, openTestStore } from '../store/sqlite-support.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { startZone, type ZoneServer } from '../support/zone.ts'

export const HOSTNAME = 'mail.example.net'
export const TARGETS = {
  return_path: 'rp.mail.example.net',
  spf: 'spf.mail.example.net',
  tracking: 'track.mail.example.net',
}
export const DMARC_REPORTS = 'dmarc@mail.example.net'

/** `default` has two IPs and spills to `spare`; `cold` never started its warmup; `off` has nothing that can send. */
async function testEgress(
  t: Test,
  store: Store,
  clock: ManualClock,
  canBind: (address: string) => Promise<boolean>,
): Promise<{ egress: Egress; warmup: Warmup; live: ReplaceableConfiguration }> {
  const live = createLiveConfiguration(
    withPools({
      default: poolOf([warmed('127.0.0.11'), warmed('127.0.0.12')], { overflow_pool: 'spare' }),
      spare: poolOf([warmed('127.0.0.13')]),
      cold: poolOf([ipSettings('127.0.0.14')]),
      off: poolOf([warmed('127.0.0.15', { enabled: false })]),
    }),
  )
  const logger = createLogger({ level: 'silent' })
  const { egress, warmup } = createEgress({ configuration: live, store, clock, canBind, logger, lookups: null })
  await egress.start()
  t.teardown(() => egress.stop())
  return { egress, warmup, live }
}

export async function testStore(t: Test): Promise<Store> {
  const { store } = await openTestStore(freshLocation(t))
  t.teardown(() => store.close().catch(() => undefined))
  return store
}

export interface SenderParts {
  store: Store
  clock: ManualClock
  keyRing: KeyRing
  egress: Egress
  warmup: Warmup
  /** With the pools. */
  live: ReplaceableConfiguration
  zone: ZoneServer
  domains: Domains
  /** Lines of the log. */
  log: string[]
  /** How often it was said that there are events. */
  wakes: { count: number }
}

export interface SenderPartsOptions {
  store?: Store
  ed25519?: boolean
  mostDomains?: number
  /** Of one question. */
  dnsTimeout?: number
  canBind?: (address: string) => Promise<boolean>
  linkCertificates?: LinkCertificates
  masterKey?: Uint8Array
}

export async function senderParts(t: Test, options: SenderPartsOptions = {}): Promise<SenderParts> {
  const { store = await testStore(t), ed25519 = false, mostDomains = 1_000, dnsTimeout = 3_000 } = options
  const { masterKey = Buffer.alloc(MASTER_KEY_BYTES, 7) } = options
  const zone = await startZone({})
  t.teardown(() => zone.close())
  const clock = manualClock()
  const keyRing = createKeyRing(masterKey)
  const { egress, warmup, live } = await testEgress(t, store, clock, options.canBind ?? (async () => true))
  const log: string[] = []
  const wakes = { count: 0 }
  const domains = createDomains({
    store,
    clock,
    keyRing,
    egress,
    realClock: clock,
    resolver: createDnsResolver({ servers: [zone.server], timeoutMilliseconds: dnsTimeout, tries: 1 }),
    hostname: HOSTNAME,
    linkCertificates: options.linkCertificates ?? null,
    hostAddresses: () => ['127.0.0.1'],
    settings: {
      targets: TARGETS,
      dmarc_report_address: DMARC_REPORTS,
      dkim: { bits: 2048, ed25519 },
      recheck_pending: 5 * MINUTE,
      recheck_verified: 6 * HOUR,
      degraded_grace: 72 * HOUR,
    },
    tracking: { opens: true, clicks: false },
    mostDomains,
    logger: createLogger({ level: 'debug', write: (line) => log.push(line) }),
    onEvents: () => void (wakes.count += 1),
  })
  return { store, clock, keyRing, egress, warmup, live, zone, domains, log, wakes }
}

/** Puts into the zone all that the domain's owner and this server publish. */
export async function publish({ domains, zone }: SenderParts, name: string): Promise<void> {
  const { records = [] } = (await domains.find(name)) ?? {}
  for (const record of records) {
    if (record.purpose === 'spf') continue
    zone.set(record.name, record.type === 'CNAME' ? { CNAME: record.value } : { TXT: [record.value] })
  }
  for (const target of Object.values(TARGETS)) {
    const published = await domains.publishedRecords(target)
    const valuesOf = (type: string): string[] =>
      published.filter((each) => each.type === type).map(({ value }) => value)
    zone.set(target, { MX: valuesOf('MX'), TXT: valuesOf('TXT') })
  }
}
