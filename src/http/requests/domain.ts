/**
 * The JSON and the query parameters of the domain routes (http/README.md "Domains"). The rules about names, labels,
 * keys and pools are those of `senders`.
 */
import { z } from 'zod'
import { ServiceError } from '../../base/errors.ts'
import type { AddDomainRequest } from '../../senders/add-domain.ts'
import type { UpdateDomainRequest } from '../../senders/change-domain.ts'
import type { ListDomainsQuery } from '../../senders/domains.ts'
import { DEFAULT_LIMIT, listParameters } from './list.ts'
import { optionalText } from './optional.ts'

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

/** Verify and rotate: everything is said by the path. */
export const noFieldsSchema = z.object({})

export const listDomainsSchema = z.object({
  status: z.enum(['all', 'pending', 'verified', 'degraded', 'failed', 'suspended']).nullish(),
  ...listParameters(),
})

export const removeDomainSchema = z.object({
  /** Waiting messages are canceled. */
  purge: z.enum(['true', 'false']).nullish(),
  /** Nothing is removed: the answer says how much mail waits. */
  dry_run: z.enum(['true', 'false']).nullish(),
})

export function toAddDomainRequest(fields: z.infer<typeof addDomainSchema>): AddDomainRequest {
  const name = fields.domain ?? fields.name
  if (name === undefined || name === null) throw new ServiceError('invalid_request', 'domain: is missing')
  return {
    name,
    returnPath: fields.return_path ?? undefined,
    trackingDomain: fields.tracking_domain ?? undefined,
    tracking: toTracking(fields.tracking),
    selector: fields.dkim_selector ?? undefined,
    privateKeyPem: fields.dkim_private_key ?? undefined,
    allowSubdomains: fields.allow_subdomains ?? undefined,
    ipPool: fields.ip_pool ?? undefined,
  }
}

export function toUpdateDomainRequest(fields: z.infer<typeof updateDomainSchema>): UpdateDomainRequest {
  return {
    tracking: toTracking(fields.tracking),
    ipPool: fields.ip_pool ?? undefined,
    allowSubdomains: fields.allow_subdomains ?? undefined,
  }
}

export function toListDomainsQuery(parameters: z.infer<typeof listDomainsSchema>): ListDomainsQuery {
  const { status, limit, after } = parameters
  return { status: status ?? 'verified', limit: limit ?? DEFAULT_LIMIT, after: after ?? null }
}

function toTracking(given: z.infer<typeof trackingSchema> | null | undefined) {
  if (given === null || given === undefined) return undefined
  return { opens: given.opens ?? undefined, clicks: given.clicks ?? undefined }
}
