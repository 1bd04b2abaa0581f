/**
 * POST /domains and POST /domains/{domain}/verify: the JSON they take (contract.md 7).
 */
import { z } from 'zod'
import { ServiceError } from '../../base/errors.ts'
import type { AddDomainRequest } from '../../senders/add-domain.ts'
import { optionalText } from './optional.ts'

export const addDomainSchema = z.object({
  domain: optionalText(),
  /** Stands for `domain`. */
  name: optionalText(),
  return_path: optionalText(),
  dkim_selector: optionalText(),
  ip_pool: optionalText(),
})

export const verifyDomainSchema = z.object({})

export function toAddDomainRequest(fields: z.infer<typeof addDomainSchema>): AddDomainRequest {
  const name = fields.domain ?? fields.name
  if (name === undefined || name === null) throw new ServiceError('invalid_request', 'domain: is missing')
  return {
    name,
    returnPath: fields.return_path ?? undefined,
    selector: fields.dkim_selector ?? undefined,
    ipPool: fields.ip_pool ?? undefined,
  }
}
