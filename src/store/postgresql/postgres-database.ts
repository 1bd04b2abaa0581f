/**
 * A connection to PostgreSQL of the shape that the verbs ask for (verbs/tools/database.ts). A statement whose answer
 * nobody needs waits for the next one that is asked for, or for the commit, and travels with it: so a verb takes as
 * many round trips as it asks questions. What such a statement fails by is thrown then.
 *
 * Rows are numbered here, from blocks: an insert needs no answer to be named by others.
 */
import type { Database, Statement } from '../verbs/tools/database.ts'
import { erasedAddress, formsOfAddress } from '../verbs/tools/stored-address.ts'
import type { BlockingWire } from './blocking-wire.ts'
import { ROW_NUMBER, toPostgres, type SentParameter } from './dialect.ts'
import type { RowNumbers } from './row-numbers.ts'
import type { StatementAnswer, WireLine, WireStatement } from './wire-messages.ts'

interface PostgresOptions {
  wire: BlockingWire
  line: WireLine
  rowNumbers: RowNumbers
  /** By which erased addresses are known again. */
  erasureKey: Uint8Array | undefined
}

/** A statement on its way. */
export interface Sent {
  /** Asks for it, with all that waits before it. */
  answer(): StatementAnswer
}

export interface PostgresDatabase extends Database {
  /** Waits for company: `answer` of it, or of one behind it. */
  send(text: string, values?: unknown[]): Sent
  flush(): void
  /** What waits is never sent. */
  forget(): void
}

export function createPostgresDatabase(options: PostgresOptions): PostgresDatabase {
  const { wire, line, rowNumbers } = options
  const names = new Map<string, string>()
  let waiting: { statement: WireStatement; settle(answer: StatementAnswer): void }[] = []

  const flush = (): void => {
    const asked = waiting
    waiting = []
    if (asked.length === 0) return
    const answers = wire.ask(
      line,
      asked.map(({ statement }) => statement),
    )
    for (const [index, answer] of answers.entries()) asked[index]?.settle(answer)
  }
  const send = (text: string, values: unknown[] = []): Sent => {
    const name = names.get(text) ?? `s${names.size}`
    names.set(text, name)
    let answered: StatementAnswer | undefined
    waiting.push({ statement: { name, text, values }, settle: (answer) => (answered = answer) })
    return {
      answer() {
        if (answered === undefined) flush()
        if (answered === undefined) throw new Error(`this statement was undone before it was sent: ${text}`)
        return answered
      },
    }
  }
  return {
    prepare: <Parameters extends unknown[], Row>(sql: string): Statement<Parameters, Row> => {
      const { text, parameters } = toPostgres(sql, rowNumbers.keyOf)
      const table = TABLE.exec(text)?.[1] ?? ''
      const number = parameters.findIndex(({ of }) => of === ROW_NUMBER)
      const ask = (given: unknown[]) => {
        const row = number === -1 ? 0 : rowNumbers.next(table)
        const values = parameters.map((each, index) => (index === number ? row : valueOf(each, given, options)))
        return { row, sent: send(text, values) }
      }
      const statement = (rowsOf: (answer: StatementAnswer) => Row[]): Statement<Parameters, Row> => ({
        run(...given) {
          const { row, sent } = ask(given)
          return {
            lastInsertRowid: row,
            get changes() {
              return sent.answer().count
            },
          }
        },
        get: (...given) => rowsOf(ask(given).sent.answer())[0],
        all: (...given) => rowsOf(ask(given).sent.answer()),
        iterate: (...given) => rowsOf(ask(given).sent.answer()).values(),
        pluck: () => statement(({ rows }) => rows.map(([value]) => stored(value) as Row)),
      })
      return statement(namedRows)
    },
    send,
    flush,
    forget: () => void (waiting = []),
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
      // Without a word nothing is found, and nothing is kept.
      return String(value).match(WORDS) ?? null
  }
}

export function namedRows<Row>({ fields, rows }: StatementAnswer): Row[] {
  return rows.map((row) => Object.fromEntries(row.map((value, index) => [fields[index] ?? '', stored(value)])) as Row)
}

/** Bytes lose their kind on the way between threads. */
function stored(value: unknown): unknown {
  return value instanceof Uint8Array ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : value
}
