/**
 * YAML values that know where they stand: what was read, before it is judged.
 *
 * Trees of a file and its drop-ins are merged into one, and each node keeps its own file, line and column, so that a
 * mistake points at the line that has to change. Plain data and pure functions; nothing throws.
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

/** A tree of a plain value, all of it at one position. */
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

/** The node at a path, or undefined when there is none. */
export function nodeAt(root: SourceNode, path: SourcePath): SourceNode | undefined {
  let node: SourceNode | undefined = root
  for (const step of path) {
    if (node?.kind === 'map') node = node.entries.get(String(step))?.value
    else if (node?.kind === 'list') node = node.items[Number(step)]
    else return undefined
  }
  return node
}

/** Where the key at the end of a path stands; undefined when there is no such key. */
export function keyPositionAt(root: SourceNode, path: SourcePath): Position | undefined {
  const parent = nodeAt(root, path.slice(0, -1))
  return parent?.kind === 'map' ? parent.entries.get(String(path.at(-1)))?.keyPosition : undefined
}

/** The position of the node at a path, or of the nearest map or list around it. */
export function nearestPosition(root: SourceNode, path: SourcePath): Position {
  for (let length = path.length; length > 0; length--) {
    const node = nodeAt(root, path.slice(0, length))
    if (node !== undefined) return node.position
  }
  return root.position
}

/** The entries of the map at a path, or none. */
export function entriesAt(root: SourceNode, path: SourcePath): [string, MapEntry][] {
  const node = nodeAt(root, path)
  return node?.kind === 'map' ? [...node.entries] : []
}

/** The items of the list at a path, or none. */
export function itemsAt(root: SourceNode, path: SourcePath): SourceNode[] {
  const node = nodeAt(root, path)
  return node?.kind === 'list' ? node.items : []
}

/** The text at a path, or undefined when there is none or it is of another kind. */
export function textAt(root: SourceNode, path: SourcePath): string | undefined {
  const node = nodeAt(root, path)
  return node?.kind === 'scalar' && typeof node.value === 'string' ? node.value : undefined
}

/** `pools.default.ips[1].address` */
export function pathText(path: SourcePath): string {
  let text = ''
  for (const step of path) {
    if (typeof step === 'number') text += `[${step}]`
    else text += text === '' ? String(step) : `.${String(step)}`
  }
  return text
}

/** `pools.yaml:12:18`, the file by its last name; `pools.d/20-bulk.yaml:3:1` for a drop-in. */
export function positionText({ file, line, column }: Position): string {
  const names = file.split('/')
  const isDropIn = names.at(-2)?.endsWith('.d') === true
  return `${names.slice(isDropIn ? -2 : -1).join('/')}:${line}:${column}`
}
