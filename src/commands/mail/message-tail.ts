/**
 * `sternpost message tail`: the newest messages, looked at every two seconds; one is printed when it is new or its
 * state changed, oldest first. It begins with the last ten.
 *
 * Honest limit: it looks at the newest hundred. On a server that takes more than that in two seconds, or of messages
 * that wait while hundreds of others come, lines are left out; `message list` leaves nothing out. Resolves when
 * interrupted; rejects with what `newest` throws.
 */
import type { ListedMessageJson } from '../../api/message.ts'
import { SECOND, type Clock } from '../../base/clock.ts'
import type { Query } from '../shared/api-client.ts'
import { pause } from '../shared/until-interrupted.ts'

interface TailOptions {
  clock: Clock
  query: Query
  /** Newest first. */
  newest: (query: Query) => Promise<ListedMessageJson[]>
  print: (message: ListedMessageJson) => void
  signal: AbortSignal
}

const LOOK_EVERY = 2 * SECOND
const SHOWN_AT_FIRST = 10

export async function tailMessages({ clock, query, newest, print, signal }: TailOptions): Promise<void> {
  let known = new Map<string, string>()
  let most = SHOWN_AT_FIRST
  while (!signal.aborted) {
    const messages = await newest(query)
    const changed = messages.filter(({ message_id: id, state }) => known.get(id) !== state)
    for (const message of changed.slice(0, most).toReversed()) print(message)
    known = new Map(messages.map(({ message_id: id, state }) => [id, state]))
    most = Number.POSITIVE_INFINITY
    await pause(clock, LOOK_EVERY, signal)
  }
}
