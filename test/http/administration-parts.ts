/**
 * What stands behind the administration routes, real: the files of a folder, the store, shaping, and the DNS of a zone.
 * Only the dispatcher is left out, what it is told is written down; and the checks, which find nothing.
 */
import { createAdministration } from '../../src/operations/operator-actions.ts'
import { createCertificateAdministration } from '../../src/operations/certificate-administration.ts'
import { createDataAdministration } from '../../src/operations/stored-data.ts'
import { ALONE } from '../../src/nodes/nodes.ts'
import { createReload } from '../../src/operations/reload.ts'
import type { FilePair } from '../../src/base/service/server-certificates.ts'
import { createLogger } from '../../src/base/logger.ts'
import type { Metrics } from '../../src/base/metrics.ts'
import type { Configuration } from '../../src/config/load-configuration.ts'
import { createFindRoute } from '../../src/delivery/route/route-message.ts'
import { createTlsPolicies } from '../../src/delivery/route/tls/tls-policy.ts'
import { createShaping } from '../../src/egress/shaping/create-shaping.ts'
import type { Shaping } from '../../src/egress/shaping/shaping.ts'
import type { Administration } from '../../src/http/exchange/operator-features.ts'
import { createDnsResolver } from '../../src/network/dns-resolver.ts'
import { createMailHosts } from '../../src/network/mail-hosts.ts'
import type { QueuedRows } from '../../src/store/records/queue-records.ts'
import type { SenderParts } from '../senders/sender-parts.ts'

export interface AdministrationWorld {
  administration: Administration
  shaping: Shaping
  /** Rows that the dispatcher was told of. */
  queued: QueuedRows[]
  /** First attempts that wait, by pool and isp, as the dispatcher would count them. */
  backlog: Record<string, Record<string, number>>
}

export interface AdministrationSetup {
  metrics: Metrics
  /** The configuration of the files; left out: what is in force. */
  load: (() => Configuration) | undefined
  backupFolders: readonly string[]
  certificateFiles: Pick<FilePair, 'cert_file' | 'cert'>[]
}

export function administrationWorld(
  { live, store, clock, egress, warmup, zone, wakes }: SenderParts,
  { metrics, load, backupFolders, certificateFiles }: AdministrationSetup,
): AdministrationWorld {
  const logger = createLogger({ level: 'silent' })
  const nothing = (): void => {}
  const shaping = createShaping({
    clock,
    logger,
    store,
    settings: live.current,
    signals: { onBlock: nothing, onIpSuspension: nothing, onLaneSuspension: nothing, onIpUnreachable: nothing },
  })
  const resolver = createDnsResolver({ servers: [zone.server], timeoutMilliseconds: 30_000, tries: 1 })
  const mailHosts = createMailHosts({
    resolver,
    allowPrivateAddresses: false,
    ownAddresses: () => [],
    mostAddresses: 20,
  })
  const tlsPolicies = createTlsPolicies({
    validating: null,
    sts: { policyFor: async () => null },
    settings: live.current,
  })
  const { reload } = createReload({
    live,
    store,
    metrics,
    logger,
    load: load ?? live.current,
    readCertificates: () => ({ changes: [], use: nothing }),
    onMoved: nothing,
    hasSpace: () => true,
  })
  const queued: QueuedRows[] = []
  const backlog: AdministrationWorld['backlog'] = {}
  const administration = createAdministration({
    live,
    reload,
    store,
    clock,
    logger,
    egress,
    warmup,
    shaping,
    findRoute: createFindRoute({ mailHosts, tlsPolicies, settings: live.current, clock }),
    dispatcher: { noteQueued: (rows) => void queued.push(rows), backlogOf: (pool) => backlog[pool] ?? {}, wake() {} },
    logLevel: { raise: (level, milliseconds) => ({ level, until: clock.now() + milliseconds }) },
    health: {
      last: () => ({ findings: [], ranAt: null, okAt: {} }),
      run: async () => ({ findings: [], ranAt: clock.now(), okAt: {} }),
    },
    nodes: ALONE,
    onEvents: () => void (wakes.count += 1),
    certificateAdministration: createCertificateAdministration({
      doorCertificates: { files: () => certificateFiles },
      issuing: null,
      directory: null,
      keepsKey: false,
      logger,
    }),
    data: createDataAdministration({
      store,
      clock,
      backups: { write: () => Promise.reject(new Error('there is no disk')), list: () => [], progress: () => null },
      backupFolders: () => backupFolders,
      budget: () => null,
      freeBytes: () => 0,
      minFree: 0,
      onEvents: () => void (wakes.count += 1),
    }),
  })
  return { administration, shaping, queued, backlog }
}
