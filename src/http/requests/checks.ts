/**
 * The JSON of a run of the checks. `null` means the same as absent.
 */
import { z } from 'zod'
import { ServiceError } from '../../base/errors.ts'
import { canonicalIp } from '../../base/ip-address.ts'
import type { AskedChecks } from '../../health/health-keeper.ts'
import { optionalText } from './optional.ts'

export const runChecksSchema = z.object({
  /** Ids of checks; all when left out. */
  checks: z.array(z.string()).min(1).max(50).nullish(),
  ip: optionalText(),
  domain: optionalText(),
})

export function toAskedChecks({ checks, ip, domain }: z.infer<typeof runChecksSchema>): AskedChecks {
  return { checks: checks ?? null, ip: ip == null ? null : toIp(ip), domain: domain?.toLowerCase() ?? null }
}

function toIp(text: string): string {
  const ip = canonicalIp(text)
  if (ip === undefined) throw new ServiceError('invalid_request', `ip: "${text}" is not an IPv4 or IPv6 address`)
  return ip
}
