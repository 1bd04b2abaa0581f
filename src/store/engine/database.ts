/**
 * What the verbs ask of an engine: prepared statements that are answered at once. better-sqlite3 is one as it is; for
 * PostgreSQL a connection of the same shape stands behind it (store/postgresql/postgres-database.ts).
 *
 * Verbs are written in the SQL that both engines speak: see store/README.md "Two engines".
 */

export interface RunResult {
  /** Rows that were changed. Where it is not asked for, PostgreSQL need not answer before the commit. */
  changes: number
  /** The number of the row that was inserted. */
  lastInsertRowid: number | bigint
}

export interface Statement<Parameters extends unknown[] = unknown[], Row = unknown> {
  run(...parameters: Parameters): RunResult
  get(...parameters: Parameters): Row | undefined
  all(...parameters: Parameters): Row[]
  iterate(...parameters: Parameters): IterableIterator<Row>
  /**
   * Where an answer takes a trip: asks, and goes on; what is returned waits for it, with all that was asked meanwhile
   * (tools/statements.ts).
   */
  ask?(...parameters: Parameters): () => Row[]
  /** Rows are the value of their first column. */
  pluck(): Statement<Parameters, Row>
}

export interface Database {
  prepare<Parameters extends unknown[] = unknown[], Row = unknown>(sql: string): Statement<Parameters, Row>
}
