/** Who may send as whom: sending domains and API keys. */
import type { Egress } from '../egress/egress.ts'
import { createApiKeys, type ApiKeys } from '../senders/api-key.ts'
import { createDomains, type Domains } from '../senders/domains.ts'
import type { Foundation } from './foundation.ts'
import type { Webhooks } from './webhooks.ts'

export interface Senders {
  domains: Domains
  apiKeys: ApiKeys
}

export function createSenders(foundation: Foundation, egress: Egress, { webhookEngine }: Webhooks): Senders {
  const { hostname, domains: settings, tracking, api } = foundation.configuration.server
  const logger = foundation.logger.child({ part: 'senders' })
  const domains = createDomains({
    ...foundation,
    egress,
    hostname,
    settings,
    logger,
    tracking: { opens: tracking.opens, clicks: tracking.clicks },
    mostDomains: api.counts_max.domains,
    onEvents: webhookEngine.wake,
  })
  foundation.stops.push(() => domains.stop())
  return { domains, apiKeys: createApiKeys({ ...foundation, logger, mostKeys: api.counts_max.keys }) }
}
