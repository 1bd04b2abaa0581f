/**
 * Progress of a replay of many webhook deliveries, whose call the server answers only at its end: the number that waits
 * for the endpoint, asked for every two seconds. Resolves when the signal says so. Never rejects: a question that fails
 * is asked again.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { pause } from '../shared/until-interrupted.ts'

interface ReplayProgressOptions {
  clock: Clock
  /** Deliveries that wait for the endpoint now. */
  pending: () => Promise<number>
  show: (text: string) => void
  signal: AbortSignal
}

const LOOK_EVERY = 2 * SECOND

export async function showReplayProgress({ clock, pending, show, signal }: ReplayProgressOptions): Promise<void> {
  const startedAt = clock.now()
  for (;;) {
    await pause(clock, LOOK_EVERY, signal)
    if (signal.aborted) return
    const count = await pending().catch(() => null)
    // The result is printed meanwhile.
    if (signal.aborted) return
    const waiting = count === null ? '' : `, ${count} deliveries wait for the endpoint`
    show(`replaying for ${Math.round((clock.now() - startedAt) / SECOND)} s${waiting}`)
  }
}
