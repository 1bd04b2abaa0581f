/**
 * The suppression list as the API shows it: list, add, remove, import (messages/README.md "Suppressions"). Throws
 * ServiceError `invalid_request` with every problem, `not_found`.
 */
import type { SuppressionJson, SuppressionQuery } from '../../api/suppression.ts'
import { SECOND, toUnixSeconds, type Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { newIdentifier } from '../../base/identifier.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { Store } from '../../store/store.ts'
import type { SuppressionRecord } from '../../store/records/suppression-records.ts'
import {
  checkSuppression,
  readEmail,
  readReason,
  readScope,
  type GivenSuppression,
  type Whose,
} from './check-suppression.ts'
import { createFieldProblems, refuseProblems } from '../accept/field-problems.ts'
import { createImportSuppressions } from './import-suppressions.ts'

export type Suppressions = ReturnType<typeof createSuppressions>

interface SuppressionsOptions {
  store: Pick<Store, 'listSuppressions' | 'addSuppression' | 'addSuppressions' | 'removeSuppressions'>
  clock: Clock
  metrics: Pick<Metrics, 'suppressions'>
}

export function createSuppressions({ store, clock, metrics }: SuppressionsOptions) {
  return {
    async list({ email, reason, scope, since, limit, after }: SuppressionQuery, whose: Whose) {
      const problems = createFieldProblems([])
      const asked = {
        ...whose,
        limit,
        after,
        email: email === null ? null : readEmail(email, problems),
        reason: reason === null ? null : readReason(reason, problems),
        scope: scope === null ? null : readScope(scope, problems),
        since: since === null ? null : since * SECOND,
      }
      refuseProblems(problems)
      const page = await store.listSuppressions(asked)
      return { suppressions: page.suppressions.map(suppressionData), next: page.next }
    },

    /** What is there already is shared, and hears of a better reason. */
    async add(given: GivenSuppression, whose: Whose) {
      const problems = createFieldProblems([])
      const checked = checkSuppression(given, whose, problems)
      refuseProblems(problems)
      const now = clock.now()
      const id = newIdentifier('sup', now)
      const { suppression, isNew } = await store.addSuppression({
        id,
        ...checked,
        isTest: whose.isTest,
        messageId: null,
        createdAt: now,
      })
      if (isNew) metrics.suppressions.inc({ reason: checked.reason })
      return { suppression: suppressionData(suppression), isNew }
    },

    /** null scope: every scope. ServiceError `not_found` when there is none. */
    async remove(email: string, scope: string | null, whose: Whose) {
      const problems = createFieldProblems([])
      const address = readEmail(email, problems)
      const inScope = scope === null ? null : readScope(scope, problems)
      refuseProblems(problems)
      const deleted = await store.removeSuppressions({ ...whose, email: address, scope: inScope })
      if (deleted > 0) return { email: address, deleted }
      const where = inScope === null ? '' : ` with scope ${inScope}`
      throw new ServiceError('not_found', `suppression of ${address}${where}`)
    },

    import: createImportSuppressions({ store, clock, metrics }),
  }
}

function suppressionData({ messageId, createdAt, ...record }: SuppressionRecord): SuppressionJson {
  const { id, email, reason, scope, domain } = record
  return { id, email, reason, scope, domain, message_id: messageId, created_at: toUnixSeconds(createdAt) }
}
