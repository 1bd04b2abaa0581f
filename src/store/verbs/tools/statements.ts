import type { Database, Statement } from '../../engine/database.ts'

/** A statement whose rows are the value of their one column. */
export const oneColumn =
  (database: Database) =>
  <Parameters extends unknown[], Value>(sql: string): Statement<Parameters, Value> =>
    database.prepare<Parameters, Value>(sql).pluck()

/**
 * Asks for rows that are looked at later. Several of them, asked one after the other before the first is looked at, take
 * one trip to PostgreSQL; SQLite has answered at once.
 */
export function ask<Parameters extends unknown[], Row>(
  statement: Statement<Parameters, Row>,
  ...parameters: Parameters
): () => Row[] {
  if (statement.ask !== undefined) return statement.ask(...parameters)
  const rows = statement.all(...parameters)
  return () => rows
}

/** The same for what may not be looked at: SQLite answers when it is. What is asked for must not change until then. */
export function askAhead<Parameters extends unknown[], Row>(
  statement: Statement<Parameters, Row>,
  ...parameters: Parameters
): () => Row[] {
  if (statement.ask !== undefined) return statement.ask(...parameters)
  let rows: Row[] | undefined
  return () => (rows ??= statement.all(...parameters))
}

/** The first row for each of these parameters, in one trip. */
export function firstOfEach<Parameters extends unknown[], Row>(
  statement: Statement<Parameters, Row>,
  each: readonly Parameters[],
): (Row | undefined)[] {
  if (statement.ask === undefined) return each.map((parameters) => statement.get(...parameters))
  return each.map((parameters) => ask(statement, ...parameters)).map((rows) => rows()[0])
}
