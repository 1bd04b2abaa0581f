/**
 * Schemas of requests and answers -> JSON Schema as OpenAPI 3.1 has it, in the plain forms that generators of clients
 * understand: `type: ['string', 'null']` for what may be null, components for schemas that have an id. Objects stay
 * open: a client must not stumble over a field that a later version adds. Throws for two different schemas with one id.
 */
import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { parse } from 'yaml'
import { z } from 'zod'
import { isPlainObject } from '../../base/plain-object.ts'

export type OpenApiSchema = Record<string, unknown>

export type SchemaComponents = ReturnType<typeof createSchemaComponents>

/** By the name of the field, or by component and name; those of `fields.yaml`. */
export const DESCRIPTIONS: Record<string, string> = parse(
  readFileSync(new URL('./fields.yaml', import.meta.url), 'utf8'),
)

/** `component`: the id of the schema that the field is in, if it has one. */
export function described(name: string, schema: OpenApiSchema, component = ''): OpenApiSchema {
  const description = DESCRIPTIONS[`${component}.${name}`] ?? DESCRIPTIONS[name]
  return description === undefined ? schema : { description, ...schema }
}

/** Said by zod; of no use to a reader. */
const LEFT_OUT = ['$schema', '$defs', 'id', 'propertyNames']
/** zod's names for "any safe integer". */
const SAFE_BOUNDS = [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER]

export function createSchemaComponents() {
  const components: Record<string, OpenApiSchema> = {}
  return {
    /** A reference where the schema has an id, else the schema. */
    schemaOf(schema: z.ZodType) {
      // Wrapped, so that a schema with an id is a reference also at the top.
      const whole: OpenApiSchema = z.toJSONSchema(z.object({ schema }), { io: 'input', unrepresentable: 'any' })
      for (const [id, definition] of Object.entries(objectIn(whole, '$defs'))) {
        const component = plainSchema(definition, id)
        if (id in components && !isDeepStrictEqual(components[id], component)) {
          throw new Error(`two schemas have the id ${id}`)
        }
        components[id] = component
      }
      return plainSchema(objectIn(whole, 'properties')['schema'])
    },
    /** By id, all that were met so far. */
    components: () => components,
  }
}

function objectIn(schema: OpenApiSchema, name: string): OpenApiSchema {
  const value = schema[name]
  return isPlainObject(value) ? value : {}
}

function plainSchema(schema: unknown, component = ''): OpenApiSchema {
  if (!isPlainObject(schema)) return {}
  const plain: OpenApiSchema = {}
  for (const [name, value] of Object.entries(schema)) {
    const isSafeBound = typeof value === 'number' && SAFE_BOUNDS.includes(value)
    if (!LEFT_OUT.includes(name) && !isSafeBound) plain[name] = plainValue(name, value, component)
  }
  return withTypeNull(plain)
}

function plainValue(name: string, value: unknown, component: string): unknown {
  const plainPart = (part: unknown): OpenApiSchema => plainSchema(part, component)
  if (name === '$ref' && typeof value === 'string') return value.replace('#/$defs/', '#/components/schemas/')
  if (name === 'properties' && isPlainObject(value)) {
    const properties = Object.entries(value)
    return Object.fromEntries(
      properties.map(([property, schema]) => [property, described(property, plainPart(schema), component)]),
    )
  }
  if (name === 'items') return plainPart(value)
  // `{}` is anything.
  if (name === 'additionalProperties') return isDeepStrictEqual(value, {}) || value === true ? true : plainPart(value)
  if (name === 'anyOf' && Array.isArray(value)) return value.map(plainPart)
  return value
}

/** `anyOf` of one plain schema and null becomes that schema with two types. */
function withTypeNull(schema: OpenApiSchema): OpenApiSchema {
  const { anyOf, ...rest } = schema
  if (!Array.isArray(anyOf) || !anyOf.some(isNull)) return schema
  const [only, ...more] = anyOf.filter((choice) => !isNull(choice))
  if (more.length > 0) return schema
  if (Array.isArray(only?.['anyOf'])) return { ...rest, anyOf: [...only['anyOf'], { type: 'null' }] }
  if (typeof only?.['type'] !== 'string') return schema
  const nullable = { ...rest, ...only, type: [only['type'], 'null'] }
  return Array.isArray(only['enum']) ? { ...nullable, enum: [...only['enum'], null] } : nullable
}

function isNull(schema: OpenApiSchema): boolean {
  return schema['type'] === 'null'
}
