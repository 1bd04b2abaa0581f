/**
 * The suppression list (http/README.md "Suppressions"). Mail of test keys has a list of its own, which only test keys
 * see; a key for some sending domains sees and changes what belongs to those.
 */
import * as wire from '../../api/suppression.ts'
import type { Whose } from '../../messages/suppressions/check-suppression.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import type { Principal } from '../exchange/principal.ts'
import { CREATED, OK, okData, okList, success, successList } from '../exchange/answer.ts'
import { param, routesOf, type Note, type Route } from '../exchange/route.ts'
import { warnOfUnknownDomains } from './domains.ts'

const { get, post, remove, postText } = routesOf('suppressions')

/** http/README.md "Limits". */
const MOST_IMPORT_BYTES = 10 * 1024 * 1024

type SuppressionFeatures = Pick<HttpFeatures, 'suppressions' | 'domains'>

export function suppressionRoutes(features: SuppressionFeatures, note: Note): Route[] {
  const { suppressions } = features
  return [
    get('/suppressions', {
      summary: 'Lists the addresses that nothing is sent to, newest first.',
      query: wire.listSuppressionsSchema,
      ok: okList(wire.suppressionSchema),
      async handler({ principal }, query) {
        const page = await suppressions.list(query, whose(principal))
        return successList(page.suppressions, page.next)
      },
    }),
    post('/suppressions', {
      summary: 'Puts an address on the suppression list.',
      body: wire.addSuppressionSchema,
      ok: { ...okData(wire.suppressionSchema, CREATED), otherStatus: OK },
      idempotency: 'after-answer',
      async handler(request, { email, reason, scope, domain }) {
        const given = { email, reason: reason ?? undefined, scope: scope ?? undefined, domain: domain ?? undefined }
        const { suppression, isNew } = await suppressions.add(given, whose(request.principal))
        await warnOfUnknownDomains(features, request, suppression.domain === null ? [] : [suppression.domain])
        if (isNew) note('suppression added', request, { suppression_id: suppression.id })
        return success(suppression, isNew ? CREATED : OK)
      },
    }),
    remove('/suppressions/:email', {
      summary: 'Takes an address off the suppression list, for one scope or for all.',
      query: wire.removeSuppressionSchema,
      ok: okData(wire.removedSuppressionsSchema),
      async handler(request, { scope }) {
        const removed = await suppressions.remove(param(request, 'email'), scope, whose(request.principal))
        // Neither the log nor the audit holds the address: it may be erased everywhere else.
        note('suppression removed', request, { domain: domainOf(removed.email), scope, deleted: removed.deleted })
        return success(removed)
      },
    }),
    postText('/suppressions/import', {
      summary: 'Adds the addresses of a CSV file with the header line email[,reason][,scope][,domain].',
      contentType: 'text/csv',
      bodyLimit: { bytes: MOST_IMPORT_BYTES, code: 'payload_too_large' },
      ok: okData(wire.importedSuppressionsSchema),
      async handler(request, text) {
        const imported = await suppressions.import(text, whose(request.principal))
        note('suppressions imported', request, { added: imported.added })
        return success(imported)
      },
    }),
  ]
}

/** Of the recipient. */
function domainOf(email: string): string {
  return email.slice(email.lastIndexOf('@') + 1)
}

function whose({ mode, reach }: Principal): Whose {
  return { isTest: mode === 'test', domains: reach.domains }
}
