/**
 * POST /domains, GET /domains/{domain}, POST /domains/{domain}/verify (contract.md 7).
 *
 * A key that is limited to some domains gets 403 for every other one, whether it exists or not.
 */
import { ServiceError } from '../../base/errors.ts'
import { readDomainName } from '../../senders/domain-name.ts'
import type { HttpFeatures } from '../features.ts'
import { mayUseDomain } from '../principal.ts'
import type { Principal } from '../principal.ts'
import { addDomainSchema, toAddDomainRequest, verifyDomainSchema } from '../requests/domain.ts'
import { route, routeWithoutBody, success } from '../route.ts'
import type { ApiRequest, Route } from '../route.ts'

const CREATED = 201
const OK = 200

export function domainRoutes({ domains }: HttpFeatures): Route[] {
  return [
    route({
      method: 'POST',
      path: '/domains',
      scope: 'domains',
      body: addDomainSchema,
      errors: ['conflict'],
      async handler({ principal }, fields) {
        const request = toAddDomainRequest(fields)
        const reading = readDomainName(request.name)
        if (reading.ok) requireDomain(principal, reading.name)
        const { record, isNew } = await domains.add(request)
        return success(isNew ? CREATED : OK, record)
      },
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/domains/:domain',
      scope: 'domains',
      body: null,
      errors: ['not_found'],
      async handler(request) {
        const name = domainInPath(request)
        const domain = await domains.find(name)
        if (domain === null) throw unknownDomain(name)
        return success(OK, domain)
      },
    }),
    route({
      method: 'POST',
      path: '/domains/:domain/verify',
      scope: 'domains',
      body: verifyDomainSchema,
      errors: ['not_found'],
      async handler(request) {
        const { record, isRepeated } = await domains.verify(domainInPath(request))
        if (isRepeated) request.warn('verify: result of the call less than 10 s ago')
        return success(OK, record)
      },
    }),
  ]
}

/** Lower-case A-labels of the domain in the path (contract.md 1). */
function domainInPath({ params, principal }: ApiRequest): string {
  const given = params['domain'] ?? ''
  const reading = readDomainName(given)
  requireDomain(principal, reading.ok ? reading.name : given)
  if (!reading.ok) throw unknownDomain(given)
  return reading.name
}

function requireDomain(principal: Principal, name: string): void {
  if (!mayUseDomain(principal, name)) throw new ServiceError('forbidden', `the key is not for the domain ${name}`)
}

function unknownDomain(name: string): ServiceError {
  return new ServiceError('not_found', `domain ${name}`)
}
