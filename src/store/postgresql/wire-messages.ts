/** What passes between the thread of the store and the one that speaks to PostgreSQL. */
import type { MessagePort } from 'node:worker_threads'

export interface WireData {
  /** Int32: raised with each answer. */
  signal: SharedArrayBuffer
  url: string
  port: MessagePort
}

export interface WireStatement {
  /** The same for the same text. */
  name: string
  text: string
  values: unknown[]
}

export type WireLine = 'write' | 'read'

export type WireRequest =
  | { kind: 'ask'; id: number; line: WireLine; statements: WireStatement[]; isPatient: boolean }
  | { kind: 'close'; id: number }

export interface StatementAnswer {
  fields: string[]
  rows: unknown[][]
  /** Rows that were changed. */
  count: number
  /** What was done: a commit of a transaction that failed is ROLLBACK. */
  command: string
}

export type WireAnswer =
  /** All of them; `process`: number of the server's process. */
  | { id: number; kind: 'done'; answers: StatementAnswer[]; process: number | null }
  /** The first that failed; those behind it did nothing. */
  | { id: number; kind: 'failed'; code: string; message: string; process: number | null }
  /** The connection ended meanwhile: whether anything was done is not known. */
  | { id: number; kind: 'lost'; message: string; process: number | null }
  /** Nothing was sent. */
  | { id: number; kind: 'unreachable'; message: string }
