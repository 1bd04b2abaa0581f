/**
 * Readers of values: from what YAML gives to what the program works with, or to what is wrong with it, and the zod
 * schemas that are made of them. What is wrong becomes a zod issue whose message is a whole sentence and whose
 * `params.suggestion` is what to write instead. Never throws.
 */
import { z } from 'zod'

export type Reading<Value> = { ok: true; value: Value } | { ok: false; problem: string; suggestion?: string }

const MOST_SHOWN_CHARACTERS = 60

/** What editors are told of a field: words of JSON Schema. `title`: the kind of value, as a person says it. */
interface FieldFacts {
  title?: string
  type?: 'string' | 'integer' | 'number' | 'boolean' | 'object'
  enum?: readonly (string | number)[]
  pattern?: string
  minimum?: number
  maximum?: number
}

export function field<Value>(read: (value: unknown) => Reading<Value>, facts: FieldFacts = {}) {
  return z
    .unknown()
    .meta({ ...facts })
    .transform((value, context): Value => {
      const reading = read(value)
      if (reading.ok) return reading.value
      const params = { suggestion: reading.suggestion ?? null }
      context.addIssue({ code: 'custom', message: reading.problem, params, input: value })
      return z.NEVER
    })
}

/** A map with exactly these keys. The message of an unknown key lists the known ones, for the suggestion. */
export function section<Shape extends z.core.$ZodLooseShape>(shape: Shape) {
  const known = Object.keys(shape).join(' ')
  return z.strictObject(shape, { error: (issue) => (issue.code === 'unrecognized_keys' ? known : undefined) })
}

/** A map from names to things; the keys are checked by `readName`. */
export function named<Thing extends z.core.$ZodType>(readName: (value: unknown) => Reading<string>, thing: Thing) {
  return z.record(
    z.string().superRefine((value, context) => {
      const reading = readName(value)
      if (!reading.ok) context.addIssue({ code: 'custom', message: reading.problem, input: value })
    }),
    thing,
  )
}

export function shown(value: unknown): string {
  if (value === null || value === undefined) return 'an empty value'
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object') return 'a map'
  const text = String(value)
  const short = text.length > MOST_SHOWN_CHARACTERS ? `${text.slice(0, MOST_SHOWN_CHARACTERS)}...` : text
  return typeof value === 'string' ? JSON.stringify(short) : short
}

export function accepted<Value>(value: Value): Reading<Value> {
  return { ok: true, value }
}

export function refused(problem: string, suggestion?: string): { ok: false; problem: string; suggestion?: string } {
  return suggestion === undefined ? { ok: false, problem } : { ok: false, problem, suggestion }
}

/** A field that is written as a text in the file; `title` says of what kind. */
export function written<Value>(title: string, read: (value: unknown) => Reading<Value>) {
  return field(read, { title, type: 'string' })
}

/** A name such as that of a pool: what characters it may have is said by `allowed`. */
export function readName(kind: string, allowed: RegExp, rule: string): (value: unknown) => Reading<string> {
  return (value) => {
    if (typeof value === 'string' && allowed.test(value)) return accepted(value)
    // What YAML takes for a number or a boolean; a key of a map is a text by itself.
    if (typeof value === 'number' || typeof value === 'boolean') {
      return refused(`${String(value)} is not a text; put the ${kind} into quotes`)
    }
    return refused(`${shown(value)} is not a ${kind}: ${rule}`)
  }
}
