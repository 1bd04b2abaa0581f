/**
 * The statements of one trip as one flight of the extended query protocol. Each is prepared once for each connection,
 * and its columns are asked for once; behind the last one stands the only Sync, so that the server answers once. What
 * stands behind a statement that fails the server leaves out, a commit too: whose transaction is open then.
 *
 * Rejects with what the driver says of the first statement that failed, or of the connection.
 */
import pg from 'pg'
import { COMMIT, type StatementAnswer, type WireStatement } from './wire-messages.ts'

type Reader = (text: string) => unknown

/** `pg_type`: how text that the server sends becomes a value. */
const READERS: Readonly<Record<number, Reader>> = {
  16: (text) => (text === 't' ? 1 : 0),
  17: (text) => Buffer.from(text.slice(2), 'hex'),
  20: Number,
  21: Number,
  23: Number,
  700: Number,
  701: Number,
  1700: Number,
}
const asText: Reader = (text) => text

export const readerOf = (type: number): Reader => READERS[type] ?? asText

/** Of what a statement answers. */
interface Columns {
  names: string[]
  readers: Reader[]
}

const NO_COLUMNS: Columns = { names: [], readers: [] }
/**
 * Behind so many statements, or bytes, and before a commit, the server is asked to send what it has: by its silence a
 * lost connection is known, and a long flight would be silent to its end.
 */
const MOST_STATEMENTS_UNHEARD = 16
const MOST_BYTES_UNHEARD = 256 * 1_024

export function createFlights(client: pg.Client): (statements: readonly WireStatement[]) => Promise<StatementAnswer[]> {
  const prepared = new Map<string, Columns>()
  return (statements) =>
    new Promise((resolve, reject) => {
      client.query(new Flight(statements, prepared, { resolve, reject }))
    })
}

interface Settling {
  resolve(answers: StatementAnswer[]): void
  reject(thrown: unknown): void
}

/** A query as the driver sends one. Behind `submit`: its calls as the messages of the server come. */
class Flight extends pg.Query {
  readonly #statements: readonly WireStatement[]
  /** By name: what was answered on this connection. */
  readonly #prepared: Map<string, Columns>
  readonly #settling: Settling
  /** Of its statements, by name. */
  readonly #columns = new Map<string, Columns>()
  /** Names of those that it prepares. */
  readonly #parsed = new Set<string>()
  readonly #answers: StatementAnswer[] = []
  /** Of the statement that is being answered. */
  #rows: unknown[][] = []

  constructor(statements: readonly WireStatement[], prepared: Map<string, Columns>, settling: Settling) {
    super('')
    this.#statements = statements
    this.#prepared = prepared
    this.#settling = settling
  }

  override submit = (connection: pg.Connection): void => {
    const { stream } = connection
    let [statements, bytes] = [0, 0]
    stream.cork()
    try {
      for (const [index, statement] of this.#statements.entries()) {
        bytes += this.#send(connection, statement)
        statements += 1
        const isFull = statements === MOST_STATEMENTS_UNHEARD || bytes >= MOST_BYTES_UNHEARD
        const next = this.#statements[index + 1]
        if (next === undefined || !(isFull || next.text === COMMIT)) continue
        connection.flush()
        ;[statements, bytes] = [0, 0]
      }
      connection.sync()
    } finally {
      stream.uncork()
    }
  }

  /** Returns the size of its values. */
  #send(connection: pg.Connection, { name, text, values: given }: WireStatement): number {
    const values = given.map(prepareValue)
    const known = this.#prepared.get(name)
    const isNew = known === undefined && !this.#parsed.has(name)
    if (isNew) {
      // It may be prepared all the same: by a flight that failed behind that, or by one that is still under way.
      connection.close({ type: 'S', name }, true)
      connection.parse({ name, text, types: [] }, true)
      this.#parsed.add(name)
    }
    if (known !== undefined) this.#columns.set(name, known)
    connection.bind({ statement: name, values }, true)
    if (isNew) connection.describe({ type: 'P' }, true)
    connection.execute({}, true)
    return values.reduce((sum, value) => sum + (value?.length ?? 0), 0)
  }

  handleRowDescription({ fields }: { fields: { name: string; dataTypeID: number }[] }): void {
    this.#columns.set(this.#answering(), {
      names: fields.map(({ name }) => name),
      readers: fields.map(({ dataTypeID }) => readerOf(dataTypeID)),
    })
  }

  handleDataRow({ fields }: { fields: (string | null)[] }): void {
    const { readers } = this.#columns.get(this.#answering()) ?? NO_COLUMNS
    this.#rows.push(fields.map((text, index) => (text === null ? null : (readers[index] ?? asText)(text))))
  }

  handleCommandComplete({ text }: { text: string }): void {
    const name = this.#answering()
    const columns = this.#columns.get(name) ?? NO_COLUMNS
    if (this.#parsed.has(name)) this.#prepared.set(name, columns)
    // `INSERT 0 5`, `UPDATE 5`, `COMMIT`.
    const count = Number(text.slice(text.lastIndexOf(' ') + 1)) || 0
    this.#answers.push({ fields: columns.names, rows: this.#rows, count })
    this.#rows = []
  }

  handleReadyForQuery(): void {
    const owed = this.#statements.length - this.#answers.length
    if (owed === 0) this.#settling.resolve(this.#answers)
    else this.#settling.reject(new Error(`the server left ${owed} statements without an answer`))
  }

  handleError(thrown: unknown): void {
    // Whether these are prepared is not known.
    const rest = this.#statements.slice(this.#answers.length)
    for (const { name } of rest) if (this.#parsed.has(name)) this.#prepared.delete(name)
    this.#settling.reject(thrown)
  }

  /** The name of the statement that is being answered. */
  #answering(): string {
    return this.#statements[this.#answers.length]?.name ?? ''
  }
}

/** As the driver sends values; its types leave it out. */
const { prepareValue } = (pg as unknown as { utils: { prepareValue(value: unknown): string | Buffer | null } }).utils
