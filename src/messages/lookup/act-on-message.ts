/**
 * What a customer does to messages that were accepted: cancel one or a batch, try one again (messages/README.md
 * "Lookup"). Throws ServiceError `not_found`, also for what the asking key may not see, and `conflict` with the reason
 * in plain words.
 */
import { ServiceError } from '../../base/errors.ts'
import type { AcceptanceOptions } from '../accept/accept-mail.ts'
import { WHY_IN_DOUBT } from '../../mail/expiry-bounce.ts'
import type { Reach } from '../../mail/reach.ts'
import { reasonAgainst } from './explain-state.ts'
import { createRetryMessage } from './retry-message.ts'
import { notFound, requireBatch, requireMessage } from './visible-messages.ts'

export type MessageActions = ReturnType<typeof createMessageActions>

export function createMessageActions(options: AcceptanceOptions) {
  const { store, clock, onEvents } = options

  return {
    retry: createRetryMessage(options),
    /** Unchanged when it was canceled before. */
    async cancel(named: string, reach: Reach) {
      const now = clock.now()
      const { id } = await requireMessage(store, named, reach, now)
      const result = await store.cancelMessage(id, now)
      if (result === null) throw notFound('message', id)
      if (result.kind === 'refused') {
        const reason = reasonAgainst(result.state)
        throw new ServiceError('conflict', `message ${id} is ${result.state}: ${reason}, so it cannot be canceled`)
      }
      if (result.kind === 'uncertain') {
        throw new ServiceError('conflict', `message ${id} may have arrived: ${WHY_IN_DOUBT}, so it cannot be canceled`)
      }
      onEvents()
      return { message_id: id, state: 'canceled' }
    },
    /** Never a conflict: what cannot be canceled is counted. */
    async cancelBatch(id: string, reach: Reach) {
      const now = clock.now()
      await requireBatch(store, id, reach, now)
      const result = await store.cancelBatch(id, now)
      if (result === null) throw notFound('batch', id)
      if (result.canceled > 0) onEvents()
      return { batch_id: id, canceled: result.canceled, not_canceled: result.notCanceled }
    },
  }
}
