/**
 * What an operator suspends and resumes: a whole IP, an IP at one provider, and whatever else holds paths back. Each
 * action is in force when it returns. Its row in the audit of the IP is written after it: a store that takes no row, as
 * on a full disk, is logged and undoes nothing. What holds the paths of an IP back is kept by the node that sends from
 * it: any other one refuses. ServiceError `not_found`, `invalid_request`, `conflict`.
 */
import { errorText, ServiceError } from '../base/errors.ts'
import { canonicalIp } from '../base/ip-address.ts'
import type { Logger } from '../base/logger.ts'
import type { LiveConfiguration } from '../config/live-configuration.ts'
import { nearestName } from '../config/settings/nearest-name.ts'
import type { ProviderChange, Warmup } from '../egress/moves/warmup.ts'
import { isMeant, type PathFilter, type PathView, type Shaping } from '../egress/shaping/shaping.ts'
import type { Administration } from '../http/exchange/operator-features.ts'
import type { Nodes } from '../nodes/nodes.ts'

export interface SuspensionParts {
  live: Pick<LiveConfiguration, 'current'>
  logger: Logger
  warmup: Pick<Warmup, 'find' | 'suspendIp' | 'resumeIp' | 'noteProvider'>
  shaping: Pick<Shaping, 'views' | 'suspend' | 'resume'>
  nodes: Pick<Nodes, 'isElsewhere' | 'refusalOf' | 'living' | 'nodeId'>
}

type Suspensions = Pick<Administration, 'paths' | 'resumePaths' | 'suspendIp' | 'resumeIp'>

export function createSuspensions({ live, logger, warmup, shaping, nodes }: SuspensionParts): Suspensions {
  const paths = (filter: PathFilter): PathView[] => shaping.views().filter((view) => isMeant(filter, view))

  function requireHere(ip: string): void {
    if (nodes.isElsewhere(ip)) throw new ServiceError('conflict', `${ip}: ${nodes.refusalOf(ip)}; ask it there`)
  }

  async function resumePaths(filter: PathFilter, actor: string): Promise<number> {
    const byHand = paths(filter).filter(({ holds }) => holds.some(({ scope }) => scope === 'provider'))
    const resumed = await shaping.resume(filter)
    for (const { ip, provider } of byHand) {
      if (ip === null || provider === null) continue
      await noteProvider(ip, { action: 'resume_provider', provider, reason: null }, actor)
    }
    return resumed
  }

  async function noteProvider(ip: string, change: ProviderChange, actor: string): Promise<void> {
    try {
      await warmup.noteProvider(ip, change, actor)
    } catch (thrown) {
      logger.error({ ip, ...change, actor, error: errorText(thrown) }, 'an action of an operator is not in the audit')
    }
  }

  function requireProvider(name: string): void {
    const { providers } = live.current().providers
    if (Object.hasOwn(providers, name)) return
    const names = Object.keys(providers)
    // Events and statistics name the isp.
    const meant = names.find((id) => providers[id]?.isp === name) ?? nearestName(name, names)
    const fix = meant === null ? `there are ${names.join(', ')}` : `did you mean "${meant}"?`
    throw new ServiceError('invalid_request', `provider: no block "${name}" in providers.yaml; ${fix}`)
  }

  return {
    paths(filter) {
      const found = paths(filter)
      if (found.length === 0) requireIp(live, filter.ip)
      return found
    },
    async resumePaths(filter, isDryRun, actor) {
      if (filter.ip !== undefined) requireHere(filter.ip)
      const count = isDryRun ? paths(filter).length : await resumePaths(filter, actor)
      if (count === 0) requireIp(live, filter.ip)
      return { paths: count, node: nodes.living() > 1 ? nodes.nodeId : null }
    },
    async suspendIp(ip, { provider, reason }, actor) {
      if (provider === null) return warmup.suspendIp(ip, reason, actor)
      const view = await warmup.find(ip)
      requireProvider(provider)
      requireHere(view.ip)
      await shaping.suspend({ ip: view.ip, provider, reason, actor })
      await noteProvider(view.ip, { action: 'suspend_provider', provider, reason }, actor)
      return view
    },
    async resumeIp(ip, provider, actor) {
      requireHere(canonicalIp(ip) ?? ip)
      if (provider === null) {
        const view = await warmup.resumeIp(ip, actor)
        await resumePaths({ ip: view.ip }, actor)
        return view
      }
      // What was taken out of the files may be resumed still.
      const resumed = await resumePaths({ ip: canonicalIp(ip) ?? ip, provider }, actor)
      if (resumed === 0) requireProvider(provider)
      return warmup.find(ip)
    },
  }
}

/** Nothing fits an address that is mistyped, which would read as if nothing waited or were held back. */
export function requireIp(live: SuspensionParts['live'], ip: string | undefined): void {
  const pools = Object.values(live.current().pools.pools)
  if (ip === undefined || pools.some(({ ips }) => ips.some(({ address }) => address === ip))) return
  throw new ServiceError(
    'invalid_request',
    `ip: no IP ${ip} in pools.yaml; \`sternpost ip list\` shows which there are`,
  )
}
