/**
 * POST /email/send (contract.md 4). The answer has exactly three fields and goes out only after the commit.
 */
import { toUnixSeconds } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { HttpFeatures } from '../features.ts'
import { sendSchema, toSendRequest } from '../requests/email.ts'
import { lenientRoute } from '../route.ts'
import type { Route } from '../route.ts'

export interface EmailRoutesOptions {
  features: HttpFeatures
  logger: Logger
  mostMailBytes: number
}

export function emailRoutes({ features, logger, mostMailBytes }: EmailRoutesOptions): Route[] {
  return [
    lenientRoute({
      method: 'POST',
      path: '/email/send',
      scope: 'send',
      body: sendSchema,
      bodyLimit: { bytes: mostMailBytes, code: 'attachment_too_large' },
      errors: ['invalid_recipient', 'domain_not_verified', 'ip_not_warmed', 'rate_limited', 'attachment_too_large'],
      async handler({ principal, requestId }, fields) {
        const { apiKeyId, mode, domains, label } = principal
        const caller = { apiKeyId, mode, domains, source: 'api' } as const
        const { messageId, acceptedAt } = await features.acceptMessage(toSendRequest(fields), caller)
        logger.info({ message_id: messageId, request_id: requestId, api_key: label }, 'message accepted')
        return { status: 200, body: { success: true, message_id: messageId, timestamp: toUnixSeconds(acceptedAt) } }
      },
    }),
  ]
}
