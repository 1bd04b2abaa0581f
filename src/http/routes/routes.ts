/**
 * The table of all API routes (contract.md) and of those for administrators. Order means nothing:
 * paths without parameters come first by rule.
 */
import type { Logger } from '../../base/logger.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import type { Route } from '../exchange/route.ts'
import { administrationRoutes } from './administration.ts'
import { domainRoutes } from './domains.ts'
import { emailRoutes } from './email.ts'
import { healthRoutes } from './health.ts'
import { ipRoutes } from './ips.ts'
import { keyRoutes } from './keys.ts'
import { messageRoutes } from './messages.ts'
import { withOpenApi } from './openapi.ts'
import { suppressionRoutes } from './suppressions.ts'
import { webhookRoutes } from './webhooks.ts'

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
