/** Statistics on the wire (http/README.md "Statistics"). */
import { z } from 'zod'
import { count, time, timeParameter } from './fields.ts'

export const statisticsQuerySchema = z.object({
  group_by: z.enum(['all', 'domain', 'tag', 'pool', 'ip', 'provider', 'event']).nullish(),
  interval: z.enum(['hour', 'day']).nullish(),
  after: timeParameter(),
  before: timeParameter(),
})

export const statisticsRowSchema = z
  .object({
    /** What is grouped by; `all` where nothing is. */
    key: z.string(),
    /** Beginning of the hour or the day, UTC. */
    at: time(),
    accepted: count(),
    delivered: count(),
    deferred: count(),
    bounced: count(),
    complained: count(),
    opened: count(),
    clicked: count(),
    machine_opened: count(),
    machine_clicked: count(),
    suppressed: count(),
    canceled: count(),
    unsubscribed: count(),
  })
  .meta({ id: 'StatisticsRow' })

/** Of `group_by=event`. */
export const eventCountSchema = z.object({ key: z.string(), at: time(), count: count() }).meta({ id: 'EventCount' })

export type StatisticsRowJson = z.infer<typeof statisticsRowSchema>
