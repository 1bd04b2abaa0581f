/**
 * A connection to PostgreSQL of the shape that the verbs ask for (verbs/tools/database.ts). A statement whose answer
 * nobody needs waits for the next one that is asked for, or for the commit, and travels with it: so a verb takes as
 * many round trips as it asks questions. What such a statement fails by is thrown then.
 *
 * Rows are numbered here: an insert needs no answer to be named by others.
 */
import type { Database, Statement } from '../engine/database.ts'
import { erasedAddress, formsOfAddress } from '../verbs/tools/stored-address.ts'
import type { BlockingWire } from './blocking-wire.ts'
import { ROW_NUMBER, toPostgres, type SentParameter } from './dialect.ts'
import type { RowNumbers } from './row-numbers.ts'
import type { SentStatement, StatementQueue } from './statement-queue.ts'
import type { StatementAnswer } from './wire-messages.ts'

interface PostgresOptions {
  queue: Pick<StatementQueue, 'prepared' | 'send'>
  rowNumbers: RowNumbers
  /** By which erased addresses are known again. */
  erasureKey: Uint8Array | undefined
}

export function createPostgresDatabase(options: PostgresOptions): Database {
  const { queue, rowNumbers } = options
  return {
    prepare: <Parameters extends unknown[], Row>(sql: string): Statement<Parameters, Row> => {
      const { text, parameters } = toPostgres(sql, rowNumbers.keyOf)
      const prepared = queue.prepared(text)
      const table = TABLE.exec(text)?.[1] ?? ''
      const number = parameters.findIndex(({ of }) => of === ROW_NUMBER)
      const valuesOf = (given: unknown[], row: number): unknown[] =>
        parameters.map((each, index) => (index === number ? row : valueOf(each, given, options)))
      const nextRow = (): number => (number === -1 ? 0 : rowNumbers.next(table))
      const ask = (given: unknown[]): SentStatement => queue.send(prepared, valuesOf(given, nextRow()))
      const statement = (rowsOf: (answer: StatementAnswer) => Row[]): Statement<Parameters, Row> => ({
        run(...given) {
          const row = nextRow()
          const sent = queue.send(prepared, valuesOf(given, row))
          return {
            lastInsertRowid: row,
            get changes() {
              return sent.answer().count
            },
          }
        },
        get: (...given) => rowsOf(ask(given).answer())[0],
        all: (...given) => rowsOf(ask(given).answer()),
        iterate: (...given) => rowsOf(ask(given).answer()).values(),
        pluck: () => statement(({ rows }) => rows.map(([value]) => stored(value) as Row)),
        ask(...given) {
          const sent = ask(given)
          return () => rowsOf(sent.answer())
        },
      })
      return statement(namedRows)
    },
  }
}

// The table of an insert.
const TABLE = /^\s*insert into (\w+)/

// Words between spaces or quotes.
const WORDS = /[^" ]+/g

function valueOf({ of, as }: SentParameter, given: unknown[], { erasureKey }: PostgresOptions): unknown {
  const value = typeof of === 'number' ? given[of] : (given[0] as Record<string, unknown>)[of]
  switch (as) {
    case 'value':
      // PostgreSQL keeps no U+0000. Requests with one are refused; a server's reply may hold one all the same.
      return typeof value === 'string' && value.includes('\0') ? value.replaceAll('\0', '\uFFFD') : value
    case 'is-null':
      return value === null
    case 'erased':
      return erasedAddress(String(value), erasureKey)
    case 'forms':
      return formsOfAddress(String(value))
    case 'words':
      // Without a word nothing is found.
      return String(value).match(WORDS) ?? null
  }
}

/** For what is asked while the engine opens: waits for the connection, and as long as it takes. The first row. */
export function askOnce(wire: BlockingWire, text: string, values: unknown[] = []): Record<string, unknown> {
  const answers = wire.ask('write', [{ name: '', text, values }], true)
  return answers.flatMap((answer) => namedRows<Record<string, unknown>>(answer))[0] ?? {}
}

export function namedRows<Row>({ fields, rows }: StatementAnswer): Row[] {
  return rows.map((row) => Object.fromEntries(row.map((value, index) => [fields[index] ?? '', stored(value)])) as Row)
}

/** Bytes lose their kind on the way between threads. */
function stored(value: unknown): unknown {
  return value instanceof Uint8Array ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : value
}
