/**
 * JSON Schemas of the five files, made from the schemas that judge them, so that editors complete keys and show the
 * texts (config/README.md "Rules of the files"). What the readers of fields accept in detail, editors do not know:
 * `sternpost check` decides.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { isPlainObject } from '../base/plain-object.ts'
import { SCHEMAS } from './judge-file.ts'
import { FILE_NAMES, type FileName } from './source/finding.ts'
import { settingDocs, type SettingDoc } from './source/setting-docs.ts'
import { readYamlSource } from './source/yaml-source.ts'

type JsonSchema = Record<string, unknown>

/** By file; `shippedFolder` holds the files with the texts. Throws when one of them cannot be read. */
export function configurationSchemas(shippedFolder: string): Record<FileName, JsonSchema> {
  const made = FILE_NAMES.map((name): [FileName, JsonSchema] => [
    name,
    schemaOf(name, shippedDocs(shippedFolder, name)),
  ])
  return Object.fromEntries(made) as Record<FileName, JsonSchema>
}

/** What the shipped file says of its keys. */
export function shippedDocs(shippedFolder: string, name: FileName): SettingDoc[] {
  const file = join(shippedFolder, `${name}.yaml`)
  const bytes = readFileSync(file)
  const reading = readYamlSource(file, bytes)
  return reading.kind === 'read' ? settingDocs(name, bytes.toString('utf8'), reading.tree) : []
}

/** What kind of value a key takes, in words; empty: a map, or nothing is known. */
export function typeText(name: FileName, path: string): string {
  const found = path.split('.').reduce<unknown>((schema, key) => below(schema, key), toJsonSchema(name))
  return isPlainObject(found) ? wordsFor(found) : ''
}

function schemaOf(name: FileName, docs: readonly SettingDoc[]): JsonSchema {
  const schema = toJsonSchema(name)
  for (const { path, text } of docs) {
    const property = path.split('.').reduce<unknown>((around, key) => below(around, key), schema)
    if (isPlainObject(property) && text !== '') property['description'] = text
  }
  return { ...schema, title: `${name}.yaml of Sternpost` }
}

function toJsonSchema(name: FileName): JsonSchema {
  return z.toJSONSchema(SCHEMAS[name], { io: 'input', unrepresentable: 'any', target: 'draft-7' })
}

/** The property itself, not what the names of a map have in common: those are the administrator's. */
function below(schema: unknown, key: string): unknown {
  const properties = isPlainObject(schema) ? schema['properties'] : undefined
  return isPlainObject(properties) ? properties[key] : undefined
}

function wordsFor(schema: JsonSchema): string {
  const { title, type, anyOf, enum: words, items } = schema
  if (typeof title === 'string') return title
  if (Array.isArray(words)) return words.join(' | ')
  if (Array.isArray(anyOf)) return anyOf.filter(isPlainObject).map(wordsFor).filter(Boolean).join(', or ')
  if (type === 'array' && isPlainObject(items)) return `list of ${wordsFor(items) || 'maps'}`
  return type === 'object' ? '' : String(type ?? '')
}
