/**
 * The suppression list as the API shows it: list, add, remove, import (messages/README.md "Suppressions"). Mail of test
 * keys has a list of its own: `isTest` says which one is meant. Throws ServiceError `invalid_request` with every
 * problem, `not_found`.
 */
import { SECOND, toUnixSeconds, type Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { newIdentifier } from '../../base/identifier.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { Store } from '../../store/store.ts'
import type { SuppressionReason, SuppressionRecord } from '../../store/records/suppression-records.ts'
import { checkSuppression, readEmail, readReason, readScope, type GivenSuppression } from './check-suppression.ts'
import { createFieldProblems, refuseProblems } from '../accept/field-problems.ts'
import { createImportSuppressions, type ImportSuppressions } from './import-suppressions.ts'

interface SuppressionData {
  id: string
  email: string
  reason: SuppressionReason
  scope: string
  message_id: string | null
  /** Unix seconds. */
  created_at: number
}

export interface SuppressionQuery {
  email: string | null
  reason: string | null
  scope: string | null
  /** Unix seconds. */
  since: number | null
  limit: number
  after: string | null
}

export interface Suppressions {
  list(query: SuppressionQuery, isTest: boolean): Promise<{ suppressions: SuppressionData[]; next: string | null }>
  /** What is there already stays as it is. */
  add(given: GivenSuppression, isTest: boolean): Promise<{ suppression: SuppressionData; isNew: boolean }>
  /** null scope: every scope. ServiceError `not_found` when there is none. */
  remove(email: string, scope: string | null, isTest: boolean): Promise<{ email: string; deleted: number }>
  import: ImportSuppressions
}

interface SuppressionsOptions {
  store: Pick<Store, 'listSuppressions' | 'addSuppression' | 'addSuppressions' | 'removeSuppressions'>
  clock: Clock
  metrics: Pick<Metrics, 'suppressions'>
}

export function createSuppressions({ store, clock, metrics }: SuppressionsOptions): Suppressions {
  return {
    async list({ email, reason, scope, since, limit, after }, isTest) {
      const problems = createFieldProblems([])
      const asked = {
        isTest,
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

    async add(given, isTest) {
      const problems = createFieldProblems([])
      const checked = checkSuppression(given, problems)
      refuseProblems(problems)
      const now = clock.now()
      const id = newIdentifier('sup', now)
      const { suppression, isNew } = await store.addSuppression({
        id,
        ...checked,
        isTest,
        messageId: null,
        createdAt: now,
      })
      if (isNew) metrics.suppressions.inc({ reason: checked.reason })
      return { suppression: suppressionData(suppression), isNew }
    },

    async remove(email, scope, isTest) {
      const problems = createFieldProblems([])
      const address = readEmail(email, problems)
      const inScope = scope === null ? null : readScope(scope, problems)
      refuseProblems(problems)
      const deleted = await store.removeSuppressions(address, inScope, isTest)
      if (deleted > 0) return { email: address, deleted }
      const where = inScope === null ? '' : ` with scope ${inScope}`
      throw new ServiceError('not_found', `suppression of ${address}${where}`)
    },

    import: createImportSuppressions({ store, clock, metrics }),
  }
}

function suppressionData({ id, email, reason, scope, messageId, createdAt }: SuppressionRecord): SuppressionData {
  return { id, email, reason, scope, message_id: messageId, created_at: toUnixSeconds(createdAt) }
}
