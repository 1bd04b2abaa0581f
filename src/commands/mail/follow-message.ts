/**
 * `sternpost send --wait`: the events of a message as they come, until it is final or the time is over.
 *
 * Gives the last state that was seen. Rejects with what the two lookups throw.
 */
import type { EventJson } from '../../api/message.ts'
import type { Clock } from '../../base/clock.ts'
import type { MessageState } from '../../mail/message.ts'

interface FollowOptions {
  clock: Clock
  mostMilliseconds: number
  lookEveryMilliseconds: number
  stateOf: () => Promise<MessageState>
  /** Oldest first. */
  timelineOf: () => Promise<EventJson[]>
  /** Called once for each. */
  onEvent: (event: EventJson) => void
}

/** States in which a message still waits for something (http/README.md "States of a message"). */
const OPEN_STATES: readonly MessageState[] = ['scheduled', 'queued', 'sending', 'deferred']

export async function followMessage(options: FollowOptions): Promise<MessageState> {
  const { clock, stateOf, timelineOf, onEvent } = options
  const end = clock.now() + options.mostMilliseconds
  const told = new Set<string>()
  for (;;) {
    // The state first: an event that comes after it is told in the next turn, and none is missed at the end.
    const state = await stateOf()
    for (const event of await timelineOf()) {
      if (!told.has(event.id)) onEvent(event)
      told.add(event.id)
    }
    const left = end - clock.now()
    if (!OPEN_STATES.includes(state) || left <= 0) return state
    await new Promise<void>((resolve) => clock.after(Math.min(options.lookEveryMilliseconds, left), resolve))
  }
}
