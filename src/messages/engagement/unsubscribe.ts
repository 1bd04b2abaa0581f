/**
 * Unsubscribing by the token of a mail (RFC 8058; http/README.md "Unsubscribe"): suppression and event, once. A token
 * that is not ours changes nothing. Rejects when the store does.
 */
import type { KeyObject } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Metrics } from '../../base/metrics.ts'
import { readUnsubscribeToken } from '../../mail/message-token.ts'
import type { Store } from '../../store/store.ts'

interface UnsubscribeOptions {
  store: Pick<Store, 'recordUnsubscribe'>
  clock: Clock
  logger: Logger
  metrics: Pick<Metrics, 'suppressions'>
  /** Of the tokens. */
  key: KeyObject
  /** Events were written. */
  onEvents: () => void
}

export type Unsubscribing = ReturnType<typeof createUnsubscribing>

export function createUnsubscribing(options: UnsubscribeOptions) {
  const { store, clock, logger, metrics, key, onEvents } = options
  return {
    isUnsubscribeToken: (token: string) => readUnsubscribeToken(token, key) !== undefined,
    /** Whether the recipient is unsubscribed now: not when the token is none of ours or its message is not kept. */
    async unsubscribe(token: string) {
      const named = readUnsubscribeToken(token, key)
      if (named === undefined) return false
      const { messageId } = named
      const { kind } = await store.recordUnsubscribe({ messageId, now: clock.now() })
      if (kind !== 'unsubscribed') return kind === 'repeated'
      logger.info({ message_id: messageId }, 'recipient unsubscribed')
      metrics.suppressions.inc({ reason: 'unsubscribe' })
      onEvents()
      return true
    },
  }
}
