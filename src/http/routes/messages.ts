/**
 * GET /email/{message_id} and its events (contract.md 6.2). An id that nobody has and one that this key may not see
 * give the same answer.
 */
import { ServiceError } from '../../base/errors.ts'
import type { HttpFeatures } from '../features.ts'
import { mayUseDomain } from '../principal.ts'
import { routeWithoutBody, success, successList } from '../route.ts'
import type { ApiRequest, Route } from '../route.ts'

export function messageRoutes({ lookupMessage, messageEvents }: HttpFeatures): Route[] {
  const findMessage = async ({ params, principal }: ApiRequest) => {
    const message = await lookupMessage(idIn(params))
    if (!mayUseDomain(principal, domainOf(message.from))) throw unknownMessage(idIn(params))
    return message
  }

  return [
    routeWithoutBody({
      method: 'GET',
      path: '/email/:id',
      scope: 'messages:read',
      body: null,
      errors: ['not_found'],
      handler: async (request) => success(OK, await findMessage(request)),
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/email/:id/events',
      scope: 'messages:read',
      body: null,
      errors: ['not_found'],
      async handler(request) {
        if (request.principal.domains.length > 0) await findMessage(request)
        return successList(await messageEvents(idIn(request.params)), null)
      },
    }),
  ]
}

const OK = 200

function idIn(params: Record<string, string>): string {
  return params['id'] ?? ''
}

/** Word for word what the lookup says of an id that nobody has. */
function unknownMessage(id: string): ServiceError {
  return new ServiceError('not_found', `message ${id}`)
}

function domainOf(address: string): string {
  return address.slice(address.lastIndexOf('@') + 1)
}
