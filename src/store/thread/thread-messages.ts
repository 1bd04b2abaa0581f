/**
 * What the store thread tells the main thread: how opening went. Each commit is noted beside the answers of its verbs.
 */
import type { MessagePort } from 'node:worker_threads'
import type { StoreLocation } from '../store-location.ts'

export interface StoreThreadData {
  location: StoreLocation
  /** Where the verbs come in, and a CommitReport goes out for each commit; the rest goes over the thread's own port. */
  verbs: MessagePort
  /** Where EngineNotes go, from whatever thread of the engine. */
  notes: MessagePort
}

export type StoreThreadMessage =
  | { kind: 'opened'; facts: Record<string, string | number>; warning: string | null; verbs: string[] }
  | { kind: 'refused'; exitCode: number; sentence: string }

/** The call that ends the thread; all others are verbs of `verbs.ts`. */
export const CLOSE_CALL = 'close'
