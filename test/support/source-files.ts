/**
 * The files of the project as text, and what they import: for the tests of the house rules and for `test:changed`.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface SourceFile {
  /** Path below the folder that was read, with forward slashes. */
  name: string
  text: string
}

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))
export const SOURCE = join(ROOT, 'src')

// The specifier of: import … from 'x', import 'x', export … from 'x', import('x').
const SPECIFIER = /(?:\bfrom\s*|\bimport\s*\(?\s*)['"]([^'"\s,()]+)['"]/g
// A worker's entry: new URL('./x.ts', import.meta.url).
const WORKER_ENTRY = /new URL\(\s*['"](\.[^'"]+\.ts)['"]\s*,\s*import\.meta\.url/g

/** Every file below the folder with one of these endings. */
export function filesBelow(folder: string, endings: readonly string[] = ['.ts']): SourceFile[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => endings.some((ending) => name.endsWith(ending)) && !name.includes('node_modules'))
    .map((name) => ({ name, text: readFileSync(join(folder, name), 'utf8') }))
}

/** What a file imports, as it is written: packages, and paths relative to the file. */
export const specifiersOf = (text: string): string[] =>
  [...text.matchAll(SPECIFIER), ...text.matchAll(WORKER_ENTRY)].map((match) => match[1] ?? '')

/** The path of a relative specifier, below the folder that `name` is below. */
export const targetOf = (name: string, specifier: string): string =>
  relative(ROOT, resolve(ROOT, dirname(name), specifier))
