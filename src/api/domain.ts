/** Sending domains on the wire (http/README.md "Domains"). */
import { z } from 'zod'
import { count, paging, optionalText, textOrNull, time, timeOrNull } from './fields.ts'

const trackingSchema = z.object({ opens: z.boolean().nullish(), clicks: z.boolean().nullish() })

export const addDomainSchema = z.object({
  domain: optionalText(),
  /** Stands for `domain`. */
  name: optionalText(),
  return_path: optionalText(),
  tracking_domain: optionalText(),
  tracking: trackingSchema.nullish(),
  dkim_selector: optionalText(),
  /** Write-only: no answer and no log line ever holds it. */
  dkim_private_key: optionalText(),
  allow_subdomains: z.boolean().nullish(),
  ip_pool: optionalText(),
})

export const updateDomainSchema = z.object({
  tracking: trackingSchema.nullish(),
  ip_pool: optionalText(),
  allow_subdomains: z.boolean().nullish(),
})

export const listDomainsSchema = z.object({
  status: z.enum(['all', 'pending', 'verified', 'degraded', 'failed', 'suspended']).nullish(),
  ...paging(),
})

export const removeDomainSchema = z.object({
  /** Waiting messages are canceled. */
  purge: z.enum(['true', 'false']).nullish(),
  /** Nothing is removed: the answer says how much mail waits. */
  dry_run: z.enum(['true', 'false']).nullish(),
})

/** One DNS record to publish, and what the last check found. */
const recordSchema = z
  .object({
    purpose: z.enum(['dkim', 'return_path', 'spf', 'dmarc', 'dmarc_reports', 'tracking']),
    required: z.boolean(),
    via: z.string().optional(),
    /** `server`: the operator of this server publishes it, in the zone of the server. */
    zone: z.enum(['server']).optional(),
    type: z.enum(['TXT', 'CNAME']),
    name: z.string(),
    host: z.string(),
    value: z.string(),
    value_chunks: z.array(z.string()).optional(),
    ttl: z.int(),
    role: z.enum(['next', 'retiring']).optional(),
    retire_at: time().optional(),
    status: z.enum(['pending', 'verified', 'failed', 'temporary_failure']),
    found: z.array(z.string()),
    error: textOrNull(),
    hint: textOrNull(),
    checked_at: timeOrNull(),
    evaluated: z.array(z.object({ ip: z.string(), result: z.string() })).optional(),
  })
  .meta({ id: 'DnsRecord' })

export const domainSchema = z
  .object({
    domain: z.string(),
    status: z.enum(['pending', 'verified', 'degraded', 'failed', 'suspended']),
    verified: z.boolean(),
    can_send: z.boolean(),
    created_at: time(),
    verified_at: timeOrNull(),
    last_checked_at: timeOrNull(),
    next_check_at: timeOrNull(),
    return_path: z.string(),
    tracking: z.object({ opens: z.boolean(), clicks: z.boolean(), domain: z.string(), tls: z.string() }),
    ip_pool: z.string(),
    allow_subdomains: z.boolean(),
    records: z.array(recordSchema),
  })
  .meta({ id: 'Domain' })

/** For whoever runs the DNS of the domain. */
export const domainLinkSchema = z.object({ url: z.string(), expires_at: time() }).meta({ id: 'DomainLink' })

export const removedDomainSchema = z
  .object({
    domain: z.string(),
    /** false: only asked how much mail waits. */
    deleted: z.boolean(),
    queued_messages: count(),
  })
  .meta({ id: 'RemovedDomain' })

export type DnsRecordJson = z.infer<typeof recordSchema>
export type DomainJson = z.infer<typeof domainSchema>
