/**
 * YAML values that know where they stand. Trees of a file and its drop-ins are merged into one, and each node keeps its
 * own file, line and column, so that a mistake points at the line that has to change. Nothing throws.
 */

export interface Position {
  file: string
  /** From 1. */
  line: number
  column: number
}

export interface MapEntry {
  keyPosition: Position
  value: SourceNode
}

export type SourceNode =
  | { kind: 'map'; position: Position; entries: Map<string, MapEntry> }
  | { kind: 'list'; position: Position; items: SourceNode[] }
  | { kind: 'scalar'; position: Position; value: unknown }

export type SourcePath = readonly PropertyKey[]

/** The plain value: maps become objects without a prototype. */
export function valueOf(node: SourceNode): unknown {
  if (node.kind === 'scalar') return node.value
  if (node.kind === 'list') return node.items.map(valueOf)
  const object: Record<string, unknown> = Object.create(null)
  for (const [key, entry] of node.entries) object[key] = valueOf(entry.value)
  return object
}

export function treeOf(value: unknown, position: Position): SourceNode {
  if (Array.isArray(value)) return { kind: 'list', position, items: value.map((item) => treeOf(item, position)) }
  if (typeof value !== 'object' || value === null) return { kind: 'scalar', position, value }
  const entries = Object.entries(value).map(([key, item]): [string, MapEntry] => [
    key,
    { keyPosition: position, value: treeOf(item, position) },
  ])
  return { kind: 'map', position, entries: new Map(entries) }
}

export function emptyMap(position: Position): Extract<SourceNode, { kind: 'map' }> {
  return { kind: 'map', position, entries: new Map() }
}

/** The value in the place of what stands at the path. Maps on the way that are not there stand where the others do. */
export function withValueAt(root: SourceNode, path: readonly string[], value: SourceNode): SourceNode {
  const [key, ...rest] = path
  if (key === undefined) return value
  const base = root.kind === 'map' ? root : emptyMap(root.position)
  const below = base.entries.get(key)?.value ?? emptyMap(base.position)
  const entry: MapEntry = { keyPosition: value.position, value: withValueAt(below, rest, value) }
  return { ...base, entries: new Map([...base.entries, [key, entry]]) }
}
