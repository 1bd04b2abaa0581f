/**
 * The queue as a whole, paths, pools and where the mail of a domain goes, on the wire. For administrators: no part of
 * the contract. Times are Unix seconds, rates and durations as the files write them.
 */
import { z } from 'zod'
import { count, optionalText, textOrNull, time, timeOrNull } from './fields.ts'

const numberOrNull = () => z.int().nullable()

const restrictions = {
  pool: optionalText(),
  provider: optionalText(),
  route: optionalText(),
  recipient_domain: optionalText(),
  domain: optionalText(),
  ip: optionalText(),
}

export const queueGroupsSchema = z.object({
  /** A group holds what the filter of the same name restricts to: `domain` is the sending domain. */
  by: z.enum(['provider', 'recipient_domain', 'domain', 'ip', 'pool']).nullish(),
  ...restrictions,
  held: z.enum(['true', 'false']).nullish(),
  accepted_before: z
    .string()
    .regex(/^\d{1,11}$/, 'expected Unix seconds')
    .transform(Number)
    .nullish(),
})

// A filter without the name that was misspelt would mean other mail, or all of it: these refuse what they do not know.

export const queueFilterSchema = z.strictObject({
  ...restrictions,
  held: z.boolean().nullish(),
  accepted_before: z.int().min(0).nullish(),
})

export const queueActionSchema = z.strictObject({
  action: z.enum(['retry', 'hold', 'release', 'drop', 'move']),
  /** Of `move`. */
  to_pool: optionalText(),
  filter: queueFilterSchema.nullish(),
  dry_run: z.boolean().nullish(),
})

export const pathFilterSchema = z.object({ ip: optionalText(), route: optionalText() })

export const resumePathsSchema = z.strictObject({
  ip: optionalText(),
  route: optionalText(),
  /** Of a lane, as `domain`: then nothing else is lifted. */
  pool: optionalText(),
  domain: optionalText(),
  dry_run: z.boolean().nullish(),
})

export const queueGroupSchema = z.object({
  name: textOrNull(),
  waiting: count(),
  due: count(),
  held: count(),
  oldest_accepted_at: time(),
})

export const queueActionResultSchema = z.object({
  action: z.enum(['retry', 'hold', 'release', 'drop', 'move']),
  messages: count(),
  dry_run: z.boolean(),
})

const holdSchema = z.object({
  kind: z.enum(['suspension', 'wait', 'limit', 'careful']),
  scope: z.enum(['path', 'lane', 'provider']),
  rule: textOrNull(),
  cause: z.string(),
  since: time(),
  until: timeOrNull(),
  rate: textOrNull(),
  connections: numberOrNull(),
  messages_per_connection: numberOrNull(),
})

export const pathSchema = z.object({
  ip: textOrNull(),
  pool: textOrNull(),
  route: z.string(),
  provider: textOrNull(),
  isp: z.string(),
  domain: textOrNull(),
  status: z.enum(['suspended', 'waiting', 'probing', 'limited', 'open']),
  concurrency: numberOrNull(),
  step: count(),
  holds: z.array(holdSchema),
})

export const resumedPathsSchema = z.object({
  paths: count(),
  dry_run: z.boolean(),
  /** The one whose paths are meant, while others live: they keep what they know. null: there is no other. */
  node: textOrNull(),
})

const limitsSchema = z.object({
  connections: z.int().min(1),
  messages_per_connection: z.int().min(1),
  in_flight: z.int().min(1),
  rate: z.string(),
  connection_rate: z.string(),
  tls: z.string(),
  idle: z.string(),
  failures: z.int().min(1),
  scope: z.enum(['host_set', 'provider']),
})

export const poolSchema = z.object({
  name: z.string(),
  default: z.boolean(),
  description: z.string(),
  overflow: z.enum(['spill', 'defer', 'reject']),
  overflow_pool: textOrNull(),
  max_defer: z.string(),
  require_warmup: z.boolean(),
  connections_max: numberOrNull(),
  rate: textOrNull(),
  waiting: count(),
  ips: z.array(
    z.object({
      ip: z.string(),
      source: z.string(),
      hostname: z.string(),
      weight: count(),
      status: z.enum(['cold', 'warming', 'paused', 'warmed', 'suspended', 'disabled']),
      sends: z.enum(['all', 'allowance', 'retries', 'nothing']),
      reason: textOrNull(),
      until: timeOrNull(),
    }),
  ),
})

export const domainRouteSchema = z.object({
  domain: z.string(),
  problem: textOrNull(),
  provider: textOrNull(),
  isp: textOrNull(),
  route: textOrNull(),
  limits: limitsSchema.nullable(),
  hosts: z.array(
    z.object({
      name: z.string(),
      addresses: z.array(z.string()),
      tls: z.object({
        policy: z.enum(['dane', 'sts', 'required', 'none']),
        demand: z.enum(['plain', 'opportunistic', 'required', 'verified', 'dane', 'skip']),
        text: z.string(),
      }),
    }),
  ),
})

export type QueueActionBody = z.input<typeof queueActionSchema>
export type QueueGroupJson = z.infer<typeof queueGroupSchema>
export type PathHoldJson = z.infer<typeof holdSchema>
export type PathJson = z.infer<typeof pathSchema>
export type ProviderLimitsJson = z.infer<typeof limitsSchema>
export type PoolJson = z.infer<typeof poolSchema>
export type DomainRouteJson = z.infer<typeof domainRouteSchema>
