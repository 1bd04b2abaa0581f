/**
 * The checks of a running server: what they look at, and how the operator is told.
 */
import { join } from 'node:path'
import { SECOND, systemClock } from '../base/clock.ts'
import { ConfigurationError, ServiceError } from '../base/errors.ts'
import { createHealthKeeper } from '../health/health-keeper.ts'
import type { AskedChecks, HealthKeeper } from '../health/health-keeper.ts'
import type { OperatorChannel } from '../health/operator-alert.ts'
import type { CheckWorld, FilesNow } from '../health/checks/world.ts'
import { createGuardedLookup } from '../network/guarded-lookup.ts'
import { createGuardedRequest } from '../network/guarded-request.ts'
import type { GuardedRequest } from '../network/guarded-request.ts'
import type { AcceptSubmission } from '../messages/accept/send-request.ts'
import { blocklistResolver } from './blocklist-resolver.ts'
import type { Foundation } from './foundation.ts'
import type { MailParts } from './mail.ts'
import { operatorMail, operatorWebhook } from './operator.ts'
import type { Reload } from './reload.ts'
import { serverFacts } from './server-facts.ts'

export interface HealthParts extends Pick<MailParts, 'domains' | 'warmup'> {
  acceptSubmission: AcceptSubmission
  reload: Reload['reload']
}

const DOCUMENT_MILLISECONDS = 5 * SECOND

export function startHealthChecks(foundation: Foundation, parts: HealthParts): HealthKeeper {
  const { live, metrics, logger, stops, configuration } = foundation
  const { data_dir: folder, hostname } = configuration.server
  const request = startRequest(foundation)
  stops.push(() => request.close())
  const keeper: HealthKeeper = createHealthKeeper({
    hostname,
    metrics,
    file: join(folder, 'health.json'),
    world: (asked, isAwaited) => worldOf({ foundation, parts, request, asked, isAwaited, keeper }),
    channels: () => channels(foundation, parts),
    interval: () => live.current().server.health.interval,
    // Real upkeep of a real machine, whatever time schedules follow.
    clock: systemClock,
    logger: logger.child({ part: 'health' }),
  })
  return keeper
}

interface WorldParts {
  foundation: Foundation
  parts: HealthParts
  request: GuardedRequest
  asked: AskedChecks
  isAwaited: boolean
  keeper: Pick<HealthKeeper, 'growthPerDay'>
}

function worldOf({ foundation, parts, request, asked, isAwaited, keeper }: WorldParts): CheckWorld {
  const { live, clock, resolver } = foundation
  const configuration = live.current()
  const ips = Object.entries(configuration.pools.pools).flatMap(([pool, { ips: ofPool }]) =>
    ofPool
      .filter(({ address, enabled }) => (asked.ip === null ? enabled : address === asked.ip))
      .map(({ address, source, hostname }) => ({ address, source, hostname, pool })),
  )
  if (asked.ip !== null && ips.length === 0) throw new ServiceError('invalid_request', `ip: ${asked.ip} is in no pool`)
  return {
    configuration,
    resolver,
    clock,
    ips,
    folder: null,
    domain: asked.domain,
    blocklistResolver: blocklistResolver(foundation),
    fetchDocument: (url) => request.get({ url, timeoutMilliseconds: DOCUMENT_MILLISECONDS }),
    filesNow: () => filesNow(parts.reload),
    server: serverFacts(foundation, { ...parts, isAwaited, growthPerDay: keeper.growthPerDay }),
  }
}

async function filesNow(reload: Reload['reload']): Promise<FilesNow> {
  try {
    const { lines, warnings } = await reload(true)
    return { mistakes: warnings, changes: lines }
  } catch (thrown) {
    if (thrown instanceof ConfigurationError) return { mistakes: thrown.mistakes, changes: [] }
    throw thrown
  }
}

function channels(foundation: Foundation, { acceptSubmission, domains }: HealthParts): OperatorChannel[] {
  const { hostname, operator, webhooks, tls } = foundation.live.current().server
  const found: OperatorChannel[] = []
  if (operator.email !== null) {
    const otherSenders = (): Promise<string[]> => sendingNames(domains)
    found.push(operatorMail({ to: operator.email, hostname, acceptSubmission, otherSenders }))
  }
  if (operator.webhook !== null) {
    found.push(
      operatorWebhook(operator.webhook, {
        allowPrivateAddresses: webhooks.allow_private_addresses,
        allowHttp: webhooks.allow_http,
        caFile: tls.ca_file,
      }),
    )
  }
  return found
}

const A_FEW = 5

/** Domains that can send when the name of this server can not. */
async function sendingNames(domains: HealthParts['domains']): Promise<string[]> {
  const page = await domains.list({ status: 'verified', limit: A_FEW, after: null })
  return page.domains.map(({ domain }) => domain)
}

/** The registries of domains are public: nothing is fetched from our own network. */
function startRequest({ resolver, configuration }: Foundation): GuardedRequest {
  return createGuardedRequest({
    allowPrivateAddresses: false,
    allowHttp: false,
    caFile: configuration.server.tls.ca_file,
    lookup: createGuardedLookup(resolver),
  })
}
