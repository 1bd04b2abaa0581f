/**
 * One YAML file, read strictly (config/README.md "Rules of the files"): bytes to a tree of values with positions, or to
 * the mistakes in it. After a syntax error only that error is told, for what follows it would be nonsense. Never throws
 * for the content of a file.
 */
import { isUtf8 } from 'node:buffer'
import {
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  parseAllDocuments,
  visit,
  type Document,
  type ErrorCode,
} from 'yaml'
import type { Mistake } from '../../base/errors.ts'
import { emptyMap, type MapEntry, type Position, type SourceNode } from './source-tree.ts'

const MOST_BYTES = 2 ** 20
/** Would change the object a value is put into. */
const REFUSED_KEYS = ['__proto__', 'constructor', 'prototype']

/** What most often is behind an error whose words are those of the grammar. */
const HINTS: Partial<Record<ErrorCode, string>> = {
  MULTILINE_IMPLICIT_KEY: '; a line is `key: value`, with a space behind the colon',
  BLOCK_IN_FLOW: '; inside { } and [ ] a comma stands between two items',
  BLOCK_AS_IMPLICIT_KEY: '; a value with a colon and a space in it belongs into quotes',
}

type YamlReading = { kind: 'read'; tree: SourceNode } | { kind: 'refused'; mistakes: Mistake[] }

interface Source {
  text: string
  locate: (offset: number) => Position
}

export function readYamlSource(file: string, bytes: Buffer): YamlReading {
  const start: Position = { file, line: 1, column: 1 }
  if (bytes.length > MOST_BYTES) return refusal(start, 'the file is larger than 1 MiB')
  if (bytes.includes(0)) return refusal(start, 'this is not plain text, as of UTF-16; save the file as UTF-8')
  if (!isUtf8(bytes)) {
    return refusal({ ...start, line: lineOfBadBytes(bytes) }, 'this line is not UTF-8 text; save the file as UTF-8')
  }
  const text = new TextDecoder().decode(bytes)
  const lineCounter = new LineCounter()
  const locate = (offset: number): Position => {
    const { line, col } = lineCounter.linePos(offset)
    return { file, line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  const documents = parseAllDocuments(text, {
    version: '1.2',
    uniqueKeys: true,
    merge: false,
    prettyErrors: false,
    lineCounter,
    logLevel: 'silent',
  })
  const [first, ...others] = documents
  // A file without a document (empty, or comments alone) sets nothing.
  if (first === undefined) return { kind: 'read', tree: emptyMap(start) }
  return readDocuments(first, others, { text, locate })
}

function readDocuments(document: Document.Parsed, others: Document.Parsed[], source: Source): YamlReading {
  const { locate } = source
  const errors = [document, ...others].flatMap((each) => each.errors)
  const syntaxError = errors.find(({ code }) => code !== 'DUPLICATE_KEY')
  if (syntaxError !== undefined) {
    const isTab = syntaxError.code === 'TAB_AS_INDENT'
    const hint = HINTS[syntaxError.code] ?? ''
    const problem = isTab ? 'a tab cannot indent YAML; use spaces' : `syntax error: ${syntaxError.message}${hint}`
    return refusal(locate(syntaxError.pos[0]), problem)
  }
  const mistakes = errors.map((error) => mistakeAt(locate(error.pos[0]), 'this key is here twice; keep one of the two'))
  mistakes.push(...refusedNodes(document, source))
  if (document.directives.yaml.explicit === true) mistakes.push(mistakeAt(locate(0), 'a %YAML line is not taken'))
  const [second] = others
  if (second !== undefined) {
    mistakes.push(mistakeAt(locate(second.range[0]), 'a second document begins here; a file holds one'))
  }
  if (mistakes.length > 0) return { kind: 'refused', mistakes }
  const { contents } = document
  if (isScalar(contents) && contents.value === null) return { kind: 'read', tree: emptyMap(locate(0)) }
  if (!isMap(contents)) return refusal(locate(0), 'the file must hold a map of keys and values')
  return { kind: 'read', tree: treeOfNode(contents, source) }
}

function refusedNodes(document: Document.Parsed, { text, locate }: Source): Mistake[] {
  const mistakes: Mistake[] = []
  visit(document, {
    Node(_, node) {
      const start = node.range?.[0] ?? 0
      if (isAlias(node)) {
        mistakes.push(mistakeAt(locate(start), `an alias (*${node.source}) is not taken; write the value out`))
        return
      }
      // The node itself begins behind its anchor and its tag.
      if (node.anchor !== undefined) {
        const position = locate(text.lastIndexOf(`&${node.anchor}`, start))
        mistakes.push(mistakeAt(position, `an anchor (&${node.anchor}) is not taken; write the value out`))
      }
      if (node.tag !== undefined) {
        mistakes.push(mistakeAt(locate(text.lastIndexOf('!', start)), 'a tag is not taken; write the plain value'))
      }
    },
    Pair(_, { key }) {
      if (!isScalar(key)) {
        if (!isAlias(key)) mistakes.push(mistakeAt(locate(startOf(key)), 'a key must be plain text'))
        return
      }
      const name = keyText(key)
      const position = locate(startOf(key))
      if (name === '<<') mistakes.push(mistakeAt(position, 'a merge key (<<) is not taken; write the keys out'))
      if (REFUSED_KEYS.includes(name)) mistakes.push(mistakeAt(position, `the name "${name}" cannot be used`))
    },
  })
  return mistakes
}

function treeOfNode(node: unknown, source: Source): SourceNode {
  const position = source.locate(startOf(node))
  if (isMap(node)) {
    const entries = node.items.map(({ key, value }): [string, MapEntry] => [
      keyText(key),
      {
        keyPosition: source.locate(startOf(key)),
        // A key without anything behind it: an empty value, at the place of the key.
        value: value === null ? { kind: 'scalar', position, value: null } : treeOfNode(value, source),
      },
    ])
    return { kind: 'map', position, entries: new Map(entries) }
  }
  if (isSeq(node)) return { kind: 'list', position, items: node.items.map((item) => treeOfNode(item, source)) }
  return { kind: 'scalar', position, value: isScalar(node) ? node.value : null }
}

/** As it is written: `12` and `on` are names like any other. */
function keyText(key: unknown): string {
  return isScalar(key) ? (key.source ?? String(key.value)) : ''
}

function startOf(node: unknown): number {
  return isNode(node) ? (node.range?.[0] ?? 0) : 0
}

function lineOfBadBytes(bytes: Buffer): number {
  let line = 1
  for (let start = 0; start < bytes.length; line++) {
    const end = bytes.indexOf('\n', start)
    const stop = end === -1 ? bytes.length : end
    if (!isUtf8(bytes.subarray(start, stop))) return line
    start = stop + 1
  }
  return 1
}

function refusal(position: Position, message: string): YamlReading {
  return { kind: 'refused', mistakes: [mistakeAt(position, message)] }
}

function mistakeAt(position: Position, message: string): Mistake {
  return { ...position, path: '', severity: 'error', message, suggestion: null }
}
