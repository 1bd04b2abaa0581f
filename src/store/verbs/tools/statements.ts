import type { Database, Statement } from './database.ts'

/** A statement whose rows are the value of their one column. */
export const oneColumn =
  (database: Database) =>
  <Parameters extends unknown[], Value>(sql: string): Statement<Parameters, Value> =>
    database.prepare<Parameters, Value>(sql).pluck()
