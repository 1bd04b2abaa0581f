/**
 * What each key of the configuration files is for: the comments of the shipped files, which hold every key at its
 * default. A comment stands above its key, or behind it on the same line. `shownSettings` gives every value of a
 * configuration with the place it comes from: a line of a file or drop-in, or the default. Pure; reads what it is
 * given.
 */
import type { FileName } from './finding.ts'
import { pathText } from './at-path.ts'
import { valueOf, type SourceNode, type SourcePath } from './source-tree.ts'

export interface SettingDoc {
  file: FileName
  path: string
  /** Of the key, else of what it stands in. */
  text: string
  /** The value of the shipped file, as it is written; null: the key holds others. */
  shipped: string | null
  value: unknown
}

/** A mark for readers of the file. */
const RESTART = ' [restart]'

/** Of one shipped file; what stands in lists is explained with the list. */
export function settingDocs(file: FileName, text: string, tree: SourceNode): SettingDoc[] {
  const lines = text.split('\n')
  const docs: SettingDoc[] = []
  walk(tree, [], '')
  return docs

  function walk(node: SourceNode, path: readonly string[], textAround: string): void {
    if (node.kind !== 'map') return
    for (const [key, { keyPosition, value }] of node.entries) {
      const here = [...path, key]
      const own = commentOf(lines, keyPosition.line, keyPosition.column).replaceAll(RESTART, '')
      // A key inside of braces is explained with them.
      const text = own === '' ? textAround : own
      docs.push({
        file,
        path: here.join('.'),
        text,
        shipped: value.kind === 'map' ? null : valueText(valueOf(value)),
        value: valueOf(value),
      })
      walk(value, here, text)
    }
  }
}

function valueText(value: unknown): string {
  if (typeof value === 'string') return /^[\w./+:@-]+$/.test(value) ? value : JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(valueText).join(', ')}]`
  if (typeof value !== 'object' || value === null) return String(value)
  return `{ ${Object.entries(value)
    .map(([key, item]) => `${key}: ${valueText(item)}`)
    .join(', ')} }`
}

/** `line` and `column` are those of the key, from 1. */
function commentOf(lines: readonly string[], line: number, column: number): string {
  const own = lines[line - 1] ?? ''
  const indent = own.slice(0, column - 1)
  // A key inside of braces shares the line with its parent, whose text holds for it.
  const isFirst = indent.trim() === ''
  const above: string[] = []
  for (let index = line - 2; isFirst && index >= 0; index--) {
    const comment = commentLine(lines[index] ?? '', indent)
    if (comment === undefined) break
    above.unshift(comment)
  }
  return [...above, behind(own)].join(' ').trim()
}

function commentLine(line: string, indent: string): string | undefined {
  // A comment at the same depth.
  const match = /^(\s*)#\s?(.*)$/.exec(line)
  return match?.[1] === indent ? match[2] : undefined
}

/** What follows `#` behind a value; a `#` in quotes is none. */
function behind(line: string): string {
  let quote: string | null = null
  for (const [index, character] of [...line].entries()) {
    if (quote === null && character === '#' && /\s/.test(line[index - 1] ?? '')) return line.slice(index + 1).trim()
    if (quote === character) quote = null
    else if (quote === null && (character === '"' || character === "'")) quote = character
  }
  return ''
}

interface ShownSetting {
  path: string
  value: unknown
  text: string
  /** null: the default. */
  origin: { file: string; line: number } | null
}

/** Of one file: what it says, and what it leaves at its default, in the order of `docs`. */
export function shownSettings(tree: SourceNode, docs: readonly SettingDoc[]): ShownSetting[] {
  const written = leavesOf(tree, [])
  const paths = new Set(written.map(({ path }) => path))
  // A list or map that is written replaces the default as a whole.
  const isWritten = (path: string): boolean =>
    paths.has(path) || written.some((leaf) => leaf.path.startsWith(`${path}[`) || leaf.path.startsWith(`${path}.`))
  const defaults = docs.flatMap(({ path, shipped, value }): ShownSetting[] =>
    shipped === null || isWritten(path) ? [] : [{ path, value, text: shipped, origin: null }],
  )
  return [...written, ...defaults].toSorted((left, right) =>
    left.path.localeCompare(right.path, 'en', { numeric: true }),
  )
}

/** Maps are opened, and lists of maps; any other list is one value. */
function leavesOf(node: SourceNode, path: SourcePath): ShownSetting[] {
  if (node.kind === 'map' && node.entries.size > 0) {
    return [...node.entries].flatMap(([key, { value }]) => leavesOf(value, [...path, key]))
  }
  const hasMaps = node.kind === 'list' && node.items.some(({ kind }) => kind === 'map')
  if (hasMaps) return node.items.flatMap((item, index) => leavesOf(item, [...path, index]))
  const value = withoutPassword(valueOf(node))
  const { file, line } = node.position
  return [{ path: pathText(path), value, text: valueText(value), origin: { file, line } }]
}

/** A URL may hold one where it must not, and is shown all the same. */
function withoutPassword(value: unknown): unknown {
  // What stands before the @ of a URL, behind the user, and a parameter of that name.
  return typeof value === 'string' ? value.replace(/(:\/\/[^/:@]*:)[^@]*@|(\bpassword=)[^&]*/g, '$1$2***@') : value
}
