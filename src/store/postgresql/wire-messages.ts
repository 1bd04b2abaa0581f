/** What passes between the thread of the store and the one that speaks to PostgreSQL. */
import type { MessagePort } from 'node:worker_threads'

export interface WireData {
  /** Int32: raised with each answer. */
  signal: SharedArrayBuffer
  url: string
  /** See PostgresLocation. */
  nodeId: string | undefined
  port: MessagePort
  /** Where EngineNotes go; null: nowhere. */
  notes: MessagePort | null
}

export interface WireStatement {
  /** The same for the same text; empty: it is not prepared, and goes alone. */
  name: string
  text: string
  values: unknown[]
}

/** Ends its transaction, and the statements of its trip. */
export const COMMIT = 'commit'

export type WireLine = 'write' | 'read'

/** What statements take for granted: where it does not hold, they are not sent. */
export interface Granted {
  /** The connection that their transaction began on, by number; null: any. */
  session: number | null
  /** What the last commit left (writing-database.ts); null: anything. */
  lastCommit: number | null
}

export interface WireQuestion extends Granted {
  statements: WireStatement[]
  /** A connection is waited for, and an answer for as long as it takes. */
  isPatient: boolean
}

export type AnsweredRequest = { id: number } & (({ kind: 'ask'; line: WireLine } & WireQuestion) | { kind: 'close' })
/** drop: nobody waits for the answer any more; the connection ends with what is under way. */
export type WireRequest = AnsweredRequest | { kind: 'drop'; line: WireLine }

export interface StatementAnswer {
  fields: string[]
  rows: unknown[][]
  /** Rows that were changed. */
  count: number
}

/**
 * | kind | says |
 * | --- | --- |
 * | done | all of them |
 * | failed | the first that failed; those behind it did nothing. `code`: SQLSTATE |
 * | lost | the connection ended meanwhile: whether anything was done is not known |
 * | unreachable | nothing was sent. `code`: of the server or the system, why there is no connection |
 * | changed | nothing was sent: this is not the database as it was left |
 */
export type WireResult =
  | { kind: 'done'; answers: StatementAnswer[] }
  | { kind: 'failed' | 'lost' | 'unreachable' | 'changed'; code: string; message: string }

/** `session`: number of the connection that it came over. */
export type WireAnswer = WireResult & { id: number; session?: number }
