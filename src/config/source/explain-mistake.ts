/**
 * From what a schema found to mistakes a person can act on, and their printed form (config/README.md "Errors"). An
 * unknown key points at the key, a missing one at the map it is missing from, anything else at the value, each in its
 * own file.
 */
import type { z } from 'zod'
import { readRegularFile } from '../../base/regular-file.ts'
import type { Mistake } from '../../base/errors.ts'
import { UNPRINTABLE } from '../../base/unprintable.ts'
import { shown } from '../settings/reading.ts'
import { INLINE_SECRET } from '../settings/network-field-types.ts'
import { nearestName } from '../settings/nearest-name.ts'
import { keyPositionAt, nearestPosition, nodeAt, pathText } from './at-path.ts'
import type { Position, SourceNode, SourcePath } from './source-tree.ts'

/** Of errors, and of warnings. */
const MOST_PRINTED = 50
const MOST_LINE_CHARACTERS = 160

/** The mistakes of one merged file. An issue at a place that no file has was inherited, and is told where it stands. */
export function mistakesOf(issues: readonly z.core.$ZodIssue[], root: SourceNode): Mistake[] {
  return issues.flatMap((issue) => {
    if (issue.code === 'unrecognized_keys') return unknownKeys(issue, root)
    if (issue.code === 'invalid_key') return wrongName(issue, root)
    if (nodeAt(root, issue.path) === undefined) return issue.input === undefined ? missingKey(issue.path, root) : []
    const meant: unknown = issue.code === 'custom' ? issue.params?.['suggestion'] : null
    const suggestion = typeof meant === 'string' ? meant : null
    return [wrongAt(nearestPosition(root, issue.path), issue.path, problemOf(issue), suggestion)]
  })
}

function unknownKeys(issue: z.core.$ZodIssueUnrecognizedKeys, root: SourceNode): Mistake[] {
  // The message of a section lists its keys (`section` in field-types.ts).
  const known = issue.message.split(' ')
  return issue.keys.flatMap((key): Mistake[] => {
    const position = keyPositionAt(root, [...issue.path, key])
    if (position === undefined) return []
    const suggestion = nearestName(key, known)
    const message = `unknown key ${JSON.stringify(key)}${didYouMean(suggestion)}`
    return [wrongAt(position, issue.path, message, suggestion)]
  })
}

function wrongName(issue: z.core.$ZodIssueInvalidKey, root: SourceNode): Mistake[] {
  const position = keyPositionAt(root, issue.path)
  const message = issue.issues[0]?.message ?? 'this name cannot be used'
  return position === undefined ? [] : [wrongAt(position, issue.path, message)]
}

function missingKey(path: SourcePath, root: SourceNode): Mistake[] {
  const parent = path.slice(0, -1)
  // A list item that is missing whole was never there; only keys are missed.
  return [wrongAt(nearestPosition(root, parent), parent, `the key "${String(path.at(-1))}" is missing`)]
}

function wrongAt(position: Position, path: SourcePath, message: string, suggestion: string | null = null): Mistake {
  return { ...position, path: pathText(path), severity: 'error', message, suggestion }
}

function problemOf(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case 'custom':
      return issue.message
    case 'invalid_type':
      return `${shown(issue.input)} is not ${issue.expected === 'array' ? 'a list' : 'a map of keys and values'}`
    case 'too_small':
      return `too few items; at least ${issue.minimum}`
    case 'too_big':
      return `too many items; at most ${issue.maximum}`
    default:
      return issue.message
  }
}

export function didYouMean(suggestion: string | null): string {
  return suggestion === null ? '' : `; did you mean ${JSON.stringify(suggestion)}?`
}

export function sortMistakes(mistakes: readonly Mistake[]): Mistake[] {
  const compare = (a: string, b: string): number => (a < b ? -1 : Number(a > b))
  return mistakes.toSorted(
    (a, b) => compare(a.file, b.file) || a.line - b.line || a.column - b.column || compare(a.message, b.message),
  )
}

/** What `check` and a failed start print. `readLine` gives a line of a file, or undefined. */
export function explainMistakes(mistakes: readonly Mistake[], readLine = readLineOfFile): string {
  const errors = mistakes.filter(({ severity }) => severity === 'error')
  const warnings = mistakes.filter(({ severity }) => severity === 'warning')
  const printed = new Set([errors, warnings].flatMap((kind) => kind.slice(0, MOST_PRINTED)))
  // The value behind such a key may be the secret itself.
  const secretLines = new Set(mistakes.filter(({ message }) => message.startsWith(INLINE_SECRET)).map(placeOf))
  const blocks = mistakes
    .filter((mistake) => printed.has(mistake))
    .map((mistake) => explainMistake(mistake, secretLines.has(placeOf(mistake)) ? () => undefined : readLine))
  const leftOut = (kind: Mistake[]): number => kind.length - MOST_PRINTED
  if (leftOut(errors) > 0) blocks.push(`and ${count(leftOut(errors), 'error')} more`)
  if (leftOut(warnings) > 0) blocks.push(`and ${count(leftOut(warnings), 'warning')} more`)
  if (errors.length === 0) return harmless(blocks.join('\n'))
  const files = new Set(errors.map(({ file }) => file))
  const summary = `${count(errors.length, 'error')} in ${count(files.size, 'file')}. The configuration is not valid.`
  return harmless([...blocks, summary].join('\n'))
}

/** One character for each, so that the caret stays below its column. */
function harmless(text: string): string {
  return text.replace(UNPRINTABLE, (character) => ('\t\n'.includes(character) ? character : '\ufffd'))
}

function explainMistake(mistake: Mistake, readLine: (file: string, line: number) => string | undefined): string {
  const { file, line, column, path, severity, message, suggestion } = mistake
  const kind = severity === 'warning' ? 'warning: ' : ''
  const heading = `${file}:${line}:${column}: ${kind}${path === '' ? '' : `${path}: `}`
  const text = readLine(file, line)
  if (text === undefined || text.trim() === '') return `${heading}${message}`
  // The caret stands below the column also where the line has tabs; a long line is shown around the column.
  const start = column > MOST_LINE_CHARACTERS ? column - MOST_LINE_CHARACTERS / 2 : 0
  const shownLine = text.slice(start, start + MOST_LINE_CHARACTERS)
  // Everything but tabs, which keep their width.
  const indent = shownLine.slice(0, column - 1 - start).replace(/[^\t]/g, ' ')
  return `${heading}${message}\n  ${shownLine}\n  ${indent}^${suggestion === null ? '' : ` ${suggestion}`}`
}

function readLineOfFile(file: string, line: number): string | undefined {
  try {
    // Line ends of Unix and of Windows.
    return readRegularFile(file).toString('utf8').split(/\r?\n/)[line - 1]
  } catch {
    // A file that cannot be read is a mistake of its own; here only the picture of its line is left out.
    return undefined
  }
}

function placeOf({ file, line }: Mistake): string {
  return `${file}:${line}`
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}
