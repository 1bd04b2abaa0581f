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

/** Of what is asked one by one, so much goes in one trip. */
const ASKED_AT_ONCE = 100

/**
 * What is found for each of many, in order, in few trips to PostgreSQL; whoever has enough stops. `find`: begins to ask
 * for `most` rows of one, as `askAhead` does; `sizeOf`: how many there are; `room`: how many are wanted still. Of each of
 * those in one trip an equal share is asked for first, and of one that has more all of it again.
 */
export function* foundOfEach<Item, Found>(
  items: readonly Item[],
  find: (item: Item, most: number) => () => Found,
  sizeOf: (found: Found) => number,
  room: () => number,
): Generator<[Item, Found], void> {
  for (let start = 0; start < items.length; start += ASKED_AT_ONCE) {
    const some = items.slice(start, start + ASKED_AT_ONCE)
    const share = Math.max(1, Math.ceil(room() / some.length))
    const asked = some.map((item) => [item, find(item, share)] as const)
    for (const [item, answer] of asked) {
      const found = answer()
      const isMore = sizeOf(found) >= share && share < room()
      yield [item, isMore ? find(item, room())() : found]
    }
  }
}

export const lengthOf = ({ length }: readonly unknown[]): number => length
