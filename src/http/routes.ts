/**
 * The table of all API routes (contract.md) and of those for administrators. Order means nothing:
 * paths without parameters come first by rule.
 */
import type { Logger } from '../base/logger.ts'
import type { HttpFeatures } from './features.ts'
import type { Route } from './route.ts'
import { administrationRoutes } from './routes/administration.ts'
import { domainRoutes } from './routes/domains.ts'
import { emailRoutes } from './routes/email.ts'
import { healthRoutes } from './routes/health.ts'
import { ipRoutes } from './routes/ips.ts'
import { keyRoutes } from './routes/keys.ts'
import { messageRoutes } from './routes/messages.ts'
import { withOpenApi } from './routes/openapi.ts'
import { suppressionRoutes } from './routes/suppressions.ts'
import { webhookRoutes } from './routes/webhooks.ts'

export interface RoutesOptions {
  features: HttpFeatures
  logger: Logger
  /** Of a body that holds a mail. */
  mostMailBytes: number
  /** Of a batch. */
  mostRecipients: number
}

export function apiRoutes({ features, logger, mostMailBytes, mostRecipients }: RoutesOptions): Route[] {
  return withOpenApi([
    ...emailRoutes({ features, mostMailBytes, mostRecipients }),
    ...messageRoutes(features, logger),
    ...domainRoutes(features, logger),
    ...ipRoutes(features, logger),
    ...webhookRoutes(features, logger),
    ...suppressionRoutes(features, logger),
    ...keyRoutes(features, logger),
    ...healthRoutes(features),
    ...administrationRoutes(features, logger),
  ])
}
