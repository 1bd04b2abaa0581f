/**
 * Statements that wait for their trip to the server, in order. A write of a row may share one statement with those
 * before it (merged-statements.ts), as long as nothing between them touches its table or reads; a question with those
 * before it, as long as nothing between them writes.
 */
import type { BlockingWire } from './blocking-wire.ts'
import { mergedForm, type MergedForm } from './merged-statements.ts'
import type { StatementAnswer, WireLine, WireStatement } from './wire-messages.ts'

/** A statement of this connection; made once for each text. */
interface Prepared {
  name: string
  text: string
  merged: MergedForm | null
  /** Of its parameters; undefined: it did not run yet. */
  types: readonly string[] | undefined
  /** Made at the first use. */
  mergedText?: string
}

/** A statement on its way. */
export interface SentStatement {
  /** Asks for it, with all that waits before it. */
  answer(): StatementAnswer
}

interface Waiting {
  statement: Prepared
  /** One list of values for each row. */
  rows: unknown[][]
  /** Of its rows, where it updates. */
  keys: Set<unknown>
  settle: ((answer: StatementAnswer) => void)[]
}

interface StatementQueue {
  prepared(text: string): Prepared
  send(statement: Prepared, values: unknown[]): SentStatement
  /** Asks for the answers of all that waits. */
  flush(): void
  /** What waits is never sent. */
  forget(): void
}

/** Ids and addresses; contents go alone. */
const MOST_BYTES_OF_A_VALUE = 1_024
const MOST_ROWS = 500

export function createStatementQueue(wire: BlockingWire, line: WireLine): StatementQueue {
  const known = new Map<string, Prepared>()
  const types = createTypeQuestions()
  let waiting: Waiting[] = []

  const flush = (): void => {
    const asked = waiting
    waiting = []
    if (asked.length === 0) return
    const statements = asked.flatMap(toWire)
    const merged = asked.map(isMerged)
    types.noteRun(asked.map(({ statement }) => statement))
    const answers = wire.ask(line, [...statements, ...types.question()])
    types.read(answers)
    let place = 0
    for (const [index, entry] of asked.entries()) {
      if (merged[index] === true) settleMerged(entry, answers[place++])
      else for (const settle of entry.settle) settle(answers[place++] ?? NO_ANSWER)
    }
  }
  return {
    prepared(text) {
      const made = known.get(text) ?? { name: `s${known.size}`, text, merged: mergedForm(text), types: undefined }
      known.set(text, made)
      return made
    },
    send(statement, values) {
      let answered: StatementAnswer | undefined
      const settle = (answer: StatementAnswer): void => void (answered = answer)
      const company = companyIn(waiting, statement, values)
      const key = values[statement.merged?.key ?? -1]
      if (company === undefined) {
        waiting.push({ statement, rows: [values], keys: new Set([key]), settle: [settle] })
      } else {
        company.rows.push(values)
        company.keys.add(key)
        company.settle.push(settle)
      }
      return {
        answer() {
          if (answered === undefined) flush()
          if (answered === undefined) throw new Error(`this was undone before it was sent: ${statement.text}`)
          return answered
        },
      }
    },
    flush,
    forget: () => void (waiting = []),
  }
}

/** The entry that these values may join, from the end back to what must stay between. */
function companyIn(waiting: readonly Waiting[], statement: Prepared, values: unknown[]): Waiting | undefined {
  const { merged } = statement
  if (merged === null || values.some(isLarge)) return undefined
  for (let place = waiting.length - 1; place >= 0; place -= 1) {
    const entry = waiting[place]
    if (entry === undefined) return undefined
    if (entry.statement === statement) {
      const isTwice = merged.kind === 'update' && entry.keys.has(values[merged.key])
      const isFree = entry.rows.length < MOST_ROWS && !isTwice
      return isFree && !entry.rows[0]?.some(isLarge) ? entry : undefined
    }
    if (!mayPass(merged, entry.statement.merged)) return undefined
  }
  return undefined
}

/** Whether the order of the two is free. */
function mayPass(merged: MergedForm, other: MergedForm | null): boolean {
  if (other === null) return false
  if (merged.kind === 'ask' || other.kind === 'ask') return merged.kind === other.kind
  return merged.table !== other.table
}

function toWire(entry: Waiting): WireStatement[] {
  const { statement, rows } = entry
  const { name, text, merged, types = [] } = statement
  if (!isMerged(entry)) return rows.map((values) => ({ name, text, values }))
  const lists = rows[0]?.map((_, column) => rows.map((row) => row[column])) ?? []
  statement.mergedText ??= merged?.text(types) ?? text
  return [{ name: `${name}m`, text: statement.mergedText, values: lists }]
}

const FIND_TYPES = 'select name, parameter_types::text[] from pg_prepared_statements where name = any($1::text[])'

/** Statements that ran alone for the first time: the types of their parameters let the next ones be merged. */
function createTypeQuestions() {
  const untyped = new Map<string, Prepared>()
  return {
    noteRun(statements: readonly Prepared[]): void {
      for (const statement of statements) {
        if (statement.merged !== null && statement.types === undefined) untyped.set(statement.name, statement)
      }
    },
    /** Goes behind what ran. */
    question: (): WireStatement[] =>
      untyped.size === 0 ? [] : [{ name: 'types', text: FIND_TYPES, values: [[...untyped.keys()]] }],
    read(answers: readonly StatementAnswer[]): void {
      if (untyped.size === 0) return
      for (const [name, types] of answers.at(-1)?.rows ?? []) {
        const statement = untyped.get(String(name))
        if (statement !== undefined) statement.types = listIn(String(types))
      }
      untyped.clear()
    },
  }
}

const NO_ANSWER: StatementAnswer = { fields: [], rows: [], count: 0, command: '' }

const isLarge = (value: unknown): boolean => value instanceof Uint8Array && value.length > MOST_BYTES_OF_A_VALUE

/** Lists of lists cannot be taken apart again. */
const isMerged = ({ statement: { types }, rows }: Waiting): boolean =>
  rows.length > 1 && types !== undefined && !types.some((type) => type.endsWith('[]'))

/** Each gets its own: the rows it asked for, or whether its row was changed. An insert tells only how many were. */
function settleMerged({ statement, settle }: Waiting, answer: StatementAnswer = NO_ANSWER): void {
  const rows = settle.map((): unknown[][] => [])
  for (const [place, ...row] of answer.rows) rows[Number(place) - 1]?.push(row)
  const isInsert = statement.merged?.kind === 'insert'
  const fields = answer.fields.slice(1)
  for (const [index, each] of settle.entries()) {
    const own = rows[index] ?? []
    each({ fields, rows: own, count: isInsert ? Number(answer.count === settle.length) : own.length, command: '' })
  }
}

/** A list of names as PostgreSQL writes it: `{bigint,"double precision"}`. */
function listIn(text: string): string[] {
  return [...text.slice(1, -1).matchAll(/"([^"]*)"|([^,]+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '')
}
