/**
 * snake_case on the wire, camelCase in the program: the one place where names of fields change from one to the other.
 * Values stay as they are, objects inside them too. Pure.
 */
import type { z } from 'zod'

type CamelCase<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Name

type SnakeCase<Name extends string> = Name extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `_${Lowercase<Head>}`}${SnakeCase<Tail>}`
  : Name

/** The fields of a request as a handler takes them: what is absent is null. */
export type CamelFields<Fields> = {
  [Name in keyof Fields as CamelCase<Name & string>]-?: undefined extends Fields[Name]
    ? NonNullable<Fields[Name]> | null
    : Fields[Name]
}

type WithoutNulls<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], null> }

type SnakeFields<View> = { [Name in keyof View as SnakeCase<Name & string>]: View[Name] }

/** Of a request, once its schema has read it. */
export function camelFields<Schema extends z.ZodObject>(
  schema: Schema,
  fields: z.infer<Schema>,
): CamelFields<z.infer<Schema>> {
  const entries = Object.keys(schema.shape).map((name) => [camelCase(name), fields[name] ?? null])
  return Object.fromEntries(entries)
}

/** What is null is left out: it changes nothing, or does not restrict. */
export function withoutNulls<Fields extends object>(fields: Fields): WithoutNulls<Fields> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null)) as WithoutNulls<Fields>
}

/** Of an answer. */
export function snakeFields<View extends object>(view: View): SnakeFields<View> {
  const entries = Object.entries(view).map(([name, value]) => [snakeCase(name), value])
  return Object.fromEntries(entries)
}

const camelCase = (name: string): string => name.replace(/_(\w)/g, (_match, letter: string) => letter.toUpperCase())
const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
