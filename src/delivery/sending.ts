/**
 * The second half of the dispatcher: from a path to a stored outcome. The pump gives rows to the delivery threads,
 * marks answer the threads' questions, results are settled, and the recorder brings what became of each row into the
 * store.
 */
import { createConnectionNotes } from './connection-notes.ts'
import type { DispatcherParts } from './dispatcher-parts.ts'
import { createDeliveryThreads } from './delivery-threads.ts'
import { createPathPump } from './path-pump.ts'
import type { RowEvents, WakeUps } from './row-events.ts'
import { createDotMarks, type DotMarks } from './settle/dot-marks.ts'
import { createOutcomeRecorder } from './settle/outcome-recorder.ts'
import { createSettleTries } from './settle/settle-tries.ts'
import { threadSettings } from './thread-settings.ts'

export type Sending = ReturnType<typeof createSending>

interface SendingHooks {
  events: RowEvents
  wake: WakeUps
  /** False: nothing goes to a thread any more. */
  maySend: () => boolean
  /** The store takes marks again. */
  onUnblocked: () => void
  onFatal: (reason: Error) => void
}

export function createSending(parts: DispatcherParts, hooks: SendingHooks) {
  const { events } = hooks
  const connections = createConnectionNotes(parts, hooks.wake.paths)
  const recorder = createOutcomeRecorder({ ...parts, onStored: events.stored })
  // Marks ask which rows are in a thread, and a settled try forgets its mark: each knows the other.
  const marks: DotMarks = createDotMarks({
    ...parts,
    behindOutcomes: recorder.behind,
    keyInThread: (claim) => tries.keyInThread(claim),
    answer: (thread, id, stale) => threads.marked(thread, id, stale),
    onUnblocked: hooks.onUnblocked,
  })
  const tries = createSettleTries({ ...parts, configuration: parts.live, recorder, marks, onLeft: events.left })
  const threads = createDeliveryThreads({
    ...parts,
    count: parts.threadCount,
    settings: threadSettings(parts.configuration(), parts, parts.threadCount),
    onResults: tries.settle,
    onMark: marks.ask,
    onConnections: connections.note,
    onStart: (thread, worker) => parts.metrics.watchThread(`delivery-${thread}`, worker),
    onDeath(thread) {
      connections.forgetThread(thread)
      tries.giveBackThread(thread)
    },
    onFatal: hooks.onFatal,
  })
  const pump = createPathPump({
    ...parts,
    tries,
    threads: () => (hooks.maySend() ? threads : undefined),
    onRoom: hooks.wake.claims,
  })
  return { recorder, marks, tries, threads, pump }
}
