/**
 * What the store thread tells the main thread: how opening went, and then each commit, for the metrics.
 */
import type { MessagePort } from 'node:worker_threads'
import type { StoreLocation } from '../store-location.ts'
import type { Durability } from './database.ts'
import type { CommitReport } from './group-commit.ts'

export interface StoreThreadData {
  location: StoreLocation
  /** Where the verbs come in; what follows comes over the thread's own port. */
  verbs: MessagePort
}

export type StoreThreadMessage =
  | { kind: 'opened'; durability: Durability; schemaVersion: number }
  | { kind: 'refused'; exitCode: number; sentence: string }
  | { kind: 'committed'; report: CommitReport }

/** The call that ends the thread; all others are verbs of `verbs.ts`. */
export const CLOSE_CALL = 'close'
