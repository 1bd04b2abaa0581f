/**
 * GET /email: the query parameters (http/README.md "Lookup"). The rules about the values are those of `messages`.
 */
import { z } from 'zod'
import { MESSAGE_STATES } from '../../mail/message.ts'
import type { MessageQuery } from '../../messages/lookup/read-search.ts'
import { DEFAULT_LIMIT, listParameters, timeParameter } from './list.ts'
import { optionalText } from './optional.ts'

export const searchSchema = z.object({
  recipient: optionalText(),
  from: optionalText(),
  state: z
    .string()
    .meta({ enum: [...MESSAGE_STATES] })
    .nullish(),
  batch_id: optionalText(),
  /** `key:value` */
  tag: optionalText(),
  isp: optionalText(),
  ip: optionalText(),
  since: timeParameter(),
  until: timeParameter(),
  ...listParameters(),
})

export function toMessageQuery(parameters: z.infer<typeof searchSchema>): MessageQuery {
  const { recipient, from, state, batch_id: batchId, tag, isp, ip, since, until, limit, after } = parameters
  return {
    recipient: recipient ?? null,
    from: from ?? null,
    state: state ?? null,
    batchId: batchId ?? null,
    tag: tag ?? null,
    isp: isp ?? null,
    ip: ip ?? null,
    since: since ?? null,
    until: until ?? null,
    limit: limit ?? DEFAULT_LIMIT,
    after: after ?? null,
  }
}
