/**
 * A JSON document -> the typed fields of a request, and every problem found, each with its path.
 *
 * Unknown fields are no problem: they are named to the caller. Lists above their limit are found before their items are
 * looked at. Only own properties are read. Throws ServiceError for a document that is no object.
 */
import { z } from 'zod'
import { ServiceError } from '../../base/errors.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import { shown } from '../../messages/accept/field-problems.ts'
import type { FieldProblem, JsonDocument } from './read-json.ts'

interface FieldReader<Fields> {
  /** True when `{}` is a valid request: then an empty body counts as `{}`. */
  takesNothing: boolean
  read(document: JsonDocument): ReadFields<Fields>
}

export interface ReadFields<Fields> {
  /** null when there are problems. */
  fields: Fields | null
  problems: FieldProblem[]
  /** As it came. */
  body: Record<string, unknown>
  /** Paths of fields that the schema does not have. */
  unknown: string[]
  /** Of the document. */
  contents: NonNullable<JsonDocument['contents']>
}

/** What the schema knows of names and limits, prepared once. */
type Shape =
  | { kind: 'object'; fields: Map<string, Shape> } // its own names
  | { kind: 'list'; most: number; item: Shape } // at most this many entries
  | { kind: 'value' } // nothing to look into

/** Enough for the warning header of 1,000 bytes. */
const MOST_UNKNOWN_FIELDS = 100

export function createFieldReader<Schema extends z.ZodType>(schema: Schema): FieldReader<z.infer<Schema>> {
  const shape = shapeOf(schema)
  return {
    takesNothing: schema.safeParse({}).success,
    read({ value: body, unsafe, contents = [] }) {
      if (!isPlainObject(body))
        throw new ServiceError('invalid_request', `the body is ${nameOf(body)}; expected an object`)
      const found: Found = { unknown: [], problems: [...unsafe], tooLong: [] }
      inspect(shape, body, '', found)
      const { unknown, problems, tooLong } = found
      const parsed = schema.safeParse(withoutItems(body, tooLong), { error: beyondLimit })
      if (!parsed.success) problems.push(...problemsOf(parsed.error.issues, body))
      return { fields: parsed.success && problems.length === 0 ? parsed.data : null, problems, body, unknown, contents }
    },
  }
}

/** The lists that are too long count as empty; the rest is judged all the same. */
function withoutItems(body: Record<string, unknown>, names: readonly string[]): Record<string, unknown> {
  return names.length === 0 ? body : { ...body, ...Object.fromEntries(names.map((name) => [name, []])) }
}

export function describeProblem({ path, text }: FieldProblem): string {
  return path === '' ? text : `${path}: ${text}`
}

function shapeOf(schema: unknown): Shape {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable) return shapeOf(schema.unwrap())
  if (schema instanceof z.ZodArray) return { kind: 'list', most: mostItems(schema), item: shapeOf(schema.element) }
  if (!(schema instanceof z.ZodObject)) return { kind: 'value' }
  const fields = Object.entries<unknown>(schema.shape).map(([name, field]) => [name, shapeOf(field)] as const)
  return { kind: 'object', fields: new Map(fields) }
}

function mostItems(schema: z.ZodArray): number {
  for (const check of schema.def.checks ?? []) {
    if (check instanceof z.core.$ZodCheckMaxLength) return check._zod.def.maximum
  }
  throw new Error('every list of a request needs a limit')
}

interface Found {
  unknown: string[]
  problems: FieldProblem[]
  /** Names of fields whose list has more entries than allowed. */
  tooLong: string[]
}

function inspect(shape: Shape, value: unknown, path: string, found: Found): void {
  if (shape.kind === 'list' && Array.isArray(value)) {
    const { most, item } = shape
    if (value.length > most) {
      found.problems.push({ path, text: `${value.length} entries; at most ${most} are allowed` })
      found.tooLong.push(path)
    } else if (item.kind !== 'value') {
      value.forEach((entry, index) => inspect(item, entry, `${path}[${index}]`, found))
    }
  }
  if (shape.kind !== 'object' || !isPlainObject(value)) return
  for (const name of Object.keys(value)) {
    const field = shape.fields.get(name)
    const fieldPath = path === '' ? shown(name) : `${path}.${shown(name)}`
    if (field !== undefined) inspect(field, value[name], fieldPath, found)
    else if (found.unknown.length < MOST_UNKNOWN_FIELDS) found.unknown.push(fieldPath)
  }
}

/** What is wrong with a number or text that a schema has no words of its own for. */
function beyondLimit(issue: z.core.$ZodRawIssue): string | undefined {
  const unit = issue['origin'] === 'string' ? ' characters' : ''
  if (issue.code === 'too_big') return `must be at most ${issue.maximum}${unit}`
  if (issue.code === 'too_small') return `must be at least ${issue.minimum}${unit}`
  return undefined
}

/** A text in the place of a list has a length too, which nobody asked for. */
function problemsOf(issues: readonly z.core.$ZodIssue[], body: object): FieldProblem[] {
  const ofWrongType = new Set(issues.flatMap(({ code, path }) => (code === 'invalid_type' ? [pathText(path)] : [])))
  return issues
    .filter(({ code, path }) => !((code === 'too_big' || code === 'too_small') && ofWrongType.has(pathText(path))))
    .map((issue) => problemOf(issue, body))
}

function problemOf(issue: z.core.$ZodIssue, body: object): FieldProblem {
  const path = pathText(issue.path)
  const value = valueAt(body, issue.path)
  if (issue.code === 'invalid_type') return { path, text: wrongType(issue.expected, value) }
  if (issue.code !== 'invalid_value') return { path, text: issue.message }
  const allowed = issue.values.map((allowedValue) => String(allowedValue)).join(', ')
  return { path, text: value === undefined || value === null ? 'is missing' : `expected one of ${allowed}` }
}

/** `attachments[1].name` */
function pathText(parts: readonly PropertyKey[]): string {
  const text = parts.map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`)).join('')
  return text.startsWith('.') ? text.slice(1) : text
}

function wrongType(expected: string, value: unknown): string {
  if (value === undefined || value === null) return 'is missing'
  return `expected ${EXPECTED[expected] ?? expected}, got ${nameOf(value)}`
}

/** Names of zod's types in the words of JSON. */
const EXPECTED: Record<string, string> = {
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'an object',
  array: 'a list',
}

function nameOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'boolean') return 'true or false'
  return EXPECTED[typeof value] ?? 'nothing'
}

function valueAt(body: unknown, path: readonly PropertyKey[]): unknown {
  let value = body
  for (const part of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return undefined
    value = Reflect.get(value, part)
  }
  return value
}
