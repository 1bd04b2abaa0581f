/** Why nothing of a queue key can be claimed now, or nothing of a path be sent. */
import type { WaitingFor } from '../../store/records/queue-records.ts'

/** Why nothing of a key can be claimed now. */
export interface Closure {
  /** Null: an event will tell. */
  until: number | null
  waitingFor: WaitingFor
  /** A sentence. */
  text: string
}
