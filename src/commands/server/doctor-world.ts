/**
 * What the checks can look at from the command line: the files, the DNS, the network of this machine.
 *
 * Files that are not valid are a finding, and then there is nothing else to look at.
 */
import { systemClock } from '../../base/clock.ts'
import { ConfigurationError, type Mistake } from '../../base/errors.ts'
import { canonicalIp } from '../../base/ip-address.ts'
import { loadConfiguration, type Configuration } from '../../config/load-configuration.ts'
import { filesFindings } from '../../health/checks/check-files.ts'
import type { HealthFinding } from '../../health/checks/check.ts'
import type { CheckWorld } from '../../health/checks/world.ts'
import { createDnsResolver } from '../../network/dns-resolver.ts'
import { configurationFolder, misuse, SHIPPED_FOLDER } from '../shared/flag-values.ts'
import type { Given } from '../shared/verb.ts'

export interface LocalWorld {
  /** null: the files are not valid. */
  world: CheckWorld | null
  /** What is wrong with them then. */
  findings: HealthFinding[]
}

type LocalFlags = Given<'config' | 'ip' | 'domain'>

export function localWorld(flags: LocalFlags): LocalWorld {
  const folder = configurationFolder(flags.config)
  try {
    const configuration = loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER, neededSecrets: 'none' })
    return { world: worldOf(folder, configuration, flags), findings: [] }
  } catch (thrown) {
    if (!(thrown instanceof ConfigurationError)) throw thrown
    return { world: null, findings: filesFindings({ mistakes: thrown.mistakes, changes: null }) }
  }
}

export function worldOf(folder: string, configuration: Configuration, { ip, domain }: LocalFlags): CheckWorld {
  const { dns, health } = configuration.server
  const limits = { timeoutMilliseconds: dns.timeout, tries: dns.tries }
  const resolver = createDnsResolver({ servers: dns.servers, ...limits })
  const lists = health.blocklist_servers
  const mistakes = configuration.warnings.filter((mistake) => !isCredential(mistake))
  return {
    configuration,
    folder,
    resolver,
    blocklistResolver: lists.length === 0 ? resolver : createDnsResolver({ servers: lists, ...limits }),
    ips: ipsOf(configuration, ip),
    domain: domain ?? null,
    clock: systemClock,
    fetchDocument: async () => ({ kind: 'failed', reason: 'not asked without a server', isCertificateProblem: false }),
    filesNow: async () => ({ mistakes, changes: null }),
    server: null,
  }
}

/** Visible to the service alone. */
function isCredential({ path, severity }: Mistake): boolean {
  return severity === 'warning' && (path.startsWith('secrets.') || ['metrics.token', 'storage.url'].includes(path))
}

function ipsOf({ pools }: Configuration, only: string | undefined): CheckWorld['ips'] {
  const ips = Object.entries(pools.pools).flatMap(([pool, { ips: ofPool }]) =>
    ofPool
      .filter(({ enabled }) => enabled || only !== undefined)
      .map(({ address, source, hostname }) => ({ address, source, hostname, pool })),
  )
  if (only === undefined) return ips
  const chosen = ips.filter(({ address }) => address === canonicalIp(only))
  if (chosen.length > 0) return chosen
  throw misuse(`--ip: ${only} is in no pool; there are ${ips.map(({ address }) => address).join(', ')}`)
}
