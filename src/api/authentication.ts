/** What DMARC and TLS reports say of a sending domain, on the wire (http/README.md "DMARC and TLS reports"). */
import { z } from 'zod'
import { count, numberParameter, textOrNull, timeParameter } from './fields.ts'

export const MOST_REPORTED_DAYS = 400

export const authenticationQuerySchema = z.object({
  /** That many UTC days, today included. */
  days: numberParameter(/^(?:[1-9]\d?|[123]\d\d|400)$/, `a whole number from 1 to ${MOST_REPORTED_DAYS}`, {
    minimum: 1,
    maximum: MOST_REPORTED_DAYS,
  })
    .transform(Number)
    .nullish(),
  from: timeParameter(),
  to: timeParameter(),
})

/** A UTC date. */
const day = () => z.string().regex(/^\d{4}-\d{2}-\d{2}$/)

const sourceSchema = z
  .object({
    /** null: of several, too many to be told apart. */
    ip: textOrNull(),
    known: z.boolean(),
    messages: count(),
    passed: count(),
    failed: count(),
    dkim_passed: count(),
    spf_passed: count(),
    quarantined: count(),
    rejected: count(),
    first_day: day(),
    last_day: day(),
  })
  .meta({ id: 'DmarcSource' })

const dmarcSchema = z.object({
  reports: count(),
  reporters: z.array(z.string()),
  messages: count(),
  passed: count(),
  failed: count(),
  sources: z.array(sourceSchema),
  days: z.array(z.object({ day: day(), messages: count(), passed: count(), failed: count() })),
})

const tlsSchema = z
  .object({
    domain: z.string(),
    successful: count(),
    failed: count(),
    failures: z.array(z.object({ result: z.string(), sessions: count() })),
    days: z.array(z.object({ day: day(), successful: count(), failed: count() })),
  })
  .meta({ id: 'ReceivedTls' })

export const authenticationSchema = z
  .object({
    domain: z.string(),
    from: day(),
    to: day(),
    policy: z.enum(['none', 'quarantine', 'reject']).nullable(),
    hint: textOrNull(),
    dmarc: dmarcSchema,
    tls: z.array(tlsSchema),
  })
  .meta({ id: 'DomainAuthentication' })

export type AuthenticationJson = z.infer<typeof authenticationSchema>
export type DmarcSourceJson = z.infer<typeof sourceSchema>
