/**
 * Importing addresses to the suppression list from CSV (messages/README.md "Suppressions"). A bad line is counted and
 * told, the others are added. Throws ServiceError `invalid_request` for a file without a right header line,
 * `payload_too_large`.
 */
import type { ImportedSuppressionsJson } from '../../api/suppression.ts'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { newIdentifier } from '../../base/identifier.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { Store } from '../../store/store.ts'
import { checkSuppression, type CheckedSuppression, type GivenSuppression, type Whose } from './check-suppression.ts'
import { createFieldProblems, shown } from '../accept/field-problems.ts'
import { readCsv, type CsvRow } from './read-csv.ts'

/** The text of the file. */
type ImportSuppressions = (csv: string, whose: Whose) => Promise<ImportedSuppressionsJson>

interface ImportOptions {
  store: Pick<Store, 'addSuppressions'>
  clock: Clock
  metrics: Pick<Metrics, 'suppressions'>
}

const MOST_BYTES = 10 * 1_024 * 1_024
const MOST_ERRORS = 100
const ROWS_PER_PIECE = 500
const COLUMNS = ['email', 'reason', 'scope', 'domain'] as const
type Column = (typeof COLUMNS)[number]

export function createImportSuppressions({ store, clock, metrics }: ImportOptions): ImportSuppressions {
  return async (csv, whose) => {
    if (Buffer.byteLength(csv) > MOST_BYTES) {
      throw new ServiceError('payload_too_large', `the file has more than ${MOST_BYTES} bytes`)
    }
    const rows = readCsv(csv)
    const columns = readHeader(rows.next().value)
    const result: ImportedSuppressionsJson = { added: 0, existing: 0, rejected: 0, errors: [] }
    for (let piece = nextPiece(rows); piece.length > 0; piece = nextPiece(rows)) {
      const entries = piece.flatMap((row) => readRow(row, { columns, whose }, result))
      const now = clock.now()
      const added =
        entries.length === 0
          ? 0
          : await store.addSuppressions(
              entries.map((entry) => ({
                ...entry,
                id: newIdentifier('sup', now),
                isTest: whose.isTest,
                messageId: null,
                createdAt: now,
              })),
            )
      result.added += added
      metrics.suppressions.inc({ reason: 'import' }, added)
      result.existing += entries.length - added
      await nextTurn()
    }
    return result
  }
}

function nextPiece(rows: Iterator<CsvRow, undefined>): CsvRow[] {
  const piece: CsvRow[] = []
  while (piece.length < ROWS_PER_PIECE) {
    const { value } = rows.next()
    if (value === undefined) break
    piece.push(value)
  }
  return piece
}

/** The columns in the order of the file. */
function readHeader(row: CsvRow | undefined): Column[] {
  const names = (row?.fields ?? []).map((name) => name.trim().toLowerCase())
  const columns = names.flatMap((name) => COLUMNS.find((column) => column === name) ?? [])
  const isRight = columns.length === names.length && new Set(columns).size === names.length && names.includes('email')
  if (isRight) return columns
  throw new ServiceError(
    'invalid_request',
    `line 1: expected the header line email[,reason][,scope][,domain], not '${shown(names.join(','))}'`,
  )
}

/** Empty for an empty line, and after a problem, which is then counted. */
function readRow(
  row: CsvRow,
  { columns, whose }: { columns: readonly Column[]; whose: Whose },
  result: ImportedSuppressionsJson,
): CheckedSuppression[] {
  const { line, fields, problem } = row
  if (fields.length === 1 && fields[0] === '' && problem === null) return []
  const isTooLong = fields.length > columns.length
  const malformed = problem ?? (isTooLong ? `${fields.length} fields, not ${columns.length}` : null)
  if (malformed !== null) return reject(line, malformed, result)
  const given: GivenSuppression = { email: undefined, reason: undefined, scope: undefined, domain: undefined }
  columns.forEach((column, index) => {
    const text = withoutGuard(fields[index]?.trim() ?? '')
    if (text !== '') given[column] = text
  })
  const problems = createFieldProblems([])
  const entry = checkSuppression(given, whose, problems)
  const found = problems.fields()
  return found.length === 0 ? [entry] : reject(line, found.join('; '), result)
}

/**
 * What a spreadsheet would take for a formula stands behind an apostrophe in an export, and so does what begins like
 * one that does: exactly one goes.
 */
function withoutGuard(text: string): string {
  return /^'+[=+\-@]/.test(text) ? text.slice(1) : text
}

function reject(line: number, text: string, result: ImportedSuppressionsJson): [] {
  result.rejected += 1
  if (result.errors.length < MOST_ERRORS) result.errors.push(`line ${line}: ${text}`)
  return []
}
