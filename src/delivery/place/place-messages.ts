/**
 * Claimed messages to their paths: hosts and provider of the recipient domain (`resolve-messages.ts`), then an egress
 * IP for each message and its allowance (`give-paths.ts`). What is captured goes to the capture server instead.
 *
 * Nothing here is an attempt. One slow name does not hold up the others. Every message gets a path, is judged by what
 * the DNS said, or goes back to the queue. src/README.md "The road of one email" (step 5).
 */
import { errorText } from '../../base/errors.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import { createCounts } from './ready-window.ts'
import { createGivePaths, type GivePathsOptions } from './give-paths.ts'
import { createGiveBack, createResolveMessages, type ResolveMessagesOptions } from './resolve-messages.ts'

export interface MessagePlacer {
  place(messages: readonly ClaimedMessage[]): void
  /** Claimed rows of a pool and route that have no path yet. */
  placing: { of(group: { pool: string; route: string }): number; firstAttempts(): number }
  /** Rows that are being placed. */
  held(): Iterable<ClaimedMessage>
  /** Resolves when every message has been placed, judged or given back. */
  settled(): Promise<void>
}

export interface MessagePlacerOptions extends ResolveMessagesOptions, GivePathsOptions {
  /** Rows are not being placed any more: `placing` has changed. */
  onDone: () => void
}

export function createMessagePlacer(options: MessagePlacerOptions): MessagePlacer {
  const resolve = createResolveMessages(options)
  const givePaths = createGivePaths(options)
  const giveBack = createGiveBack(options)
  const underWay = new Map<Promise<void>, readonly ClaimedMessage[]>()
  const waiting = createCounts()
  let firstAttempts = 0

  function count(messages: readonly ClaimedMessage[], by: 1 | -1): void {
    for (const { pool, route, attempts } of messages) {
      waiting.add(`${pool} ${route}`, by)
      if (attempts === 0) firstAttempts += by
    }
  }

  function run(messages: readonly ClaimedMessage[], groups: readonly ClaimedMessage[][]): void {
    count(messages, 1)
    const placing = Promise.all(groups.map(resolve))
      .then((ready) => givePaths(ready.flat()))
      // No known fault leads here. Nothing is placed yet, and what went back before stays as it is.
      .catch((thrown: unknown) => giveBack(messages, errorText(thrown)))
      .finally(() => {
        underWay.delete(placing)
        count(messages, -1)
        options.onDone()
      })
    underWay.set(placing, messages)
  }

  return {
    place(messages) {
      if (messages.length === 0) return
      const byDomain = Map.groupBy(messages, ({ recipientDomain, isCaptured }) => `${isCaptured} ${recipientDomain}`)
      const groups = [...byDomain.values()]
      const isKnown = ([first]: ClaimedMessage[]): boolean =>
        first !== undefined && (first.isCaptured || options.routes.fresh(first.recipientDomain) !== undefined)
      // Those whose hosts are known share one reservation; each of the others comes when its answer does.
      const known = groups.filter(isKnown)
      if (known.length > 0) run(known.flat(), known)
      for (const group of groups) if (!known.includes(group)) run(group, [group])
    },
    placing: { of: ({ pool, route }) => waiting.of(`${pool} ${route}`), firstAttempts: () => firstAttempts },
    *held() {
      for (const messages of underWay.values()) yield* messages
    },
    async settled() {
      while (underWay.size > 0) await Promise.all(underWay.keys())
    },
  }
}
