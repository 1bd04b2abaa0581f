/**
 * Statements that wait for their trip to the server, in order. A write of a row may share one statement with those
 * before it (merged-statements.ts), as long as nothing between them touches its table or reads; a question with those
 * before it, as long as nothing between them writes.
 */
import { ServiceError } from '../../base/errors.ts'
import type { BlockingWire } from './blocking-wire.ts'
import { mergedForm, type MergedForm } from './merged-statements.ts'
import { COMMIT, type StatementAnswer, type WireLine, type WireStatement } from './wire-messages.ts'

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
  settle: Settle[]
  /** They are too large for lists. */
  isContent: boolean
}

type Settle = (answer: StatementAnswer) => void

export interface StatementQueue {
  prepared(text: string): Prepared
  /** Waits for company: `answer` of it, or of one behind it. */
  send(statement: Prepared, values: unknown[]): SentStatement
  sendText(text: string, values?: unknown[]): SentStatement
  /** Asks for the answers of all that waits. */
  flush(): void
  /** What waits is never sent. */
  forget(): void
}

/** Ids and addresses; in a list, contents would have to be text. */
const MOST_BYTES_OF_A_VALUE = 1_024
const MOST_ROWS = 500
/** Of rows that have contents. */
const MOST_BYTES_OF_A_CONTENT = 64 * 1_024
const MOST_CONTENTS = 16

export function createStatementQueue(wire: BlockingWire, line: WireLine): StatementQueue {
  const known = new Map<string, Prepared>()
  let waiting: Waiting[] = []

  const flush = (): void => {
    const asked = waiting
    waiting = []
    if (asked.length === 0) return
    const sent = asked.flatMap(sentFor)
    const untyped = asked.map(({ statement }) => statement).filter(isUntyped)
    const types = untyped.length === 0 ? [] : [questionOfTypes(untyped)]
    // Nothing may fail behind a commit.
    const place = asked.at(-1)?.statement.text === COMMIT ? sent.length - 1 : sent.length
    const statements = sent.map((each) => each.wire)
    statements.splice(place, 0, ...types)
    const answers = wire.ask(line, statements)
    if (untyped.length > 0) readTypes(untyped, answers[place])
    for (const [index, { bring }] of sent.entries()) {
      bring(answers[index < place ? index : index + types.length] ?? NO_ANSWER)
    }
  }
  const queue: StatementQueue = {
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
        const isContent = largestOf(values) > MOST_BYTES_OF_A_VALUE
        waiting.push({ statement, rows: [values], keys: new Set([key]), settle: [settle], isContent })
      } else {
        company.rows.push(values)
        company.keys.add(key)
        company.settle.push(settle)
      }
      return {
        answer() {
          if (answered === undefined) flush()
          if (answered !== undefined) return answered
          const cause = new Error(`this was undone before it was sent: ${statement.text}`)
          throw new ServiceError('unavailable', 'the database did not answer', { cause })
        },
      }
    },
    sendText: (text, values = []) => queue.send(queue.prepared(text), values),
    flush,
    forget: () => void (waiting = []),
  }
  return queue
}

/** The entry that these values may join, from the end back to what must stay between. */
function companyIn(waiting: readonly Waiting[], statement: Prepared, values: unknown[]): Waiting | undefined {
  const { merged } = statement
  const size = largestOf(values)
  if (merged === null || size > MOST_BYTES_OF_A_CONTENT) return undefined
  const isContent = size > MOST_BYTES_OF_A_VALUE
  for (let place = waiting.length - 1; place >= 0; place -= 1) {
    const entry = waiting[place]
    if (entry === undefined) return undefined
    if (entry.statement === statement) {
      const isTwice = merged.kind === 'update' && entry.keys.has(values[merged.key])
      const isFree = entry.rows.length < MOST_ROWS && !isTwice
      return isFree && entry.isContent === isContent && (!isContent || merged.repeated) ? entry : undefined
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

/** On its way, and who hears its answer. */
interface Sent {
  wire: WireStatement
  bring: Settle
}

function sentFor(entry: Waiting): Sent[] {
  if (entry.rows.length === 1) return alone(entry)
  if (entry.isContent) return repeated(entry)
  const { types } = entry.statement
  // Lists of lists cannot be taken apart again.
  return types === undefined || types.some((type) => type.endsWith('[]')) ? alone(entry) : [inLists(entry, types)]
}

function alone({ statement: { name, text }, rows, settle }: Waiting): Sent[] {
  return settle.map((bring, index) => ({ wire: { name, text, values: rows[index] ?? [] }, bring }))
}

function inLists({ statement, rows, settle }: Waiting, types: readonly string[]): Sent {
  const { name, text, merged } = statement
  const lists = rows[0]?.map((_, column) => rows.map((row) => row[column])) ?? []
  statement.mergedText ??= merged?.text(types) ?? text
  const isInsert = merged?.kind === 'insert'
  return {
    wire: { name: `${name}m`, text: statement.mergedText, values: lists },
    bring: (answer) => settleMerged(settle, answer, isInsert),
  }
}

/** Powers of two at once: few statements to prepare. */
function repeated({ statement: { name, text, merged }, rows, settle }: Waiting): Sent[] {
  const sent: Sent[] = []
  let most = MOST_CONTENTS
  for (let first = 0; first < rows.length; first += most) {
    while (most > rows.length - first) most /= 2
    const listening = settle.slice(first, first + most)
    sent.push({
      wire: {
        name: `${name}x${most}`,
        text: merged?.repeated?.(most) ?? text,
        values: rows.slice(first, first + most).flat(),
      },
      bring: (answer) => settleMerged(listening, answer, true),
    })
  }
  return sent
}

const FIND_TYPES = 'select name, parameter_types::text[] from pg_prepared_statements where name = any($1::text[])'

/** It runs alone for the first time: the types of its parameters let the next ones be merged. */
const isUntyped = ({ merged, types }: Prepared): boolean => merged !== null && types === undefined

/** Goes behind the first runs of these. */
function questionOfTypes(statements: readonly Prepared[]): WireStatement {
  return { name: 'types', text: FIND_TYPES, values: [statements.map(({ name }) => name)] }
}

function readTypes(statements: readonly Prepared[], answer = NO_ANSWER): void {
  const types = new Map(answer.rows.map(([name, list]) => [name, listIn(String(list))]))
  for (const statement of statements) statement.types = types.get(statement.name)
}

const NO_ANSWER: StatementAnswer = { fields: [], rows: [], count: 0 }

/** Of the bytes among them. */
function largestOf(values: readonly unknown[]): number {
  let largest = 0
  for (const value of values) if (value instanceof Uint8Array && value.length > largest) largest = value.length
  return largest
}

/** Each gets its own: the rows it asked for, or whether its row was changed. An insert tells only how many were. */
function settleMerged(settle: readonly Settle[], answer: StatementAnswer, isInsert: boolean): void {
  const rows = rowsByPlace(answer, settle.length)
  const fields = answer.fields.slice(1)
  for (const [index, each] of settle.entries()) {
    const own = rows[index] ?? []
    each({ fields, rows: own, count: isInsert ? Number(answer.count === settle.length) : own.length })
  }
}

/** Rows of a merged question for each of those that asked. */
function rowsByPlace({ rows }: StatementAnswer, count: number): unknown[][][] {
  const found = Array.from({ length: count }, (): unknown[][] => [])
  for (const [place, ...row] of rows) found[Number(place) - 1]?.push(row)
  return found
}

/** A list of names as PostgreSQL writes it: `{bigint,"double precision"}`. */
function listIn(text: string): string[] {
  return [...text.slice(1, -1).matchAll(/"([^"]*)"|([^,]+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '')
}
