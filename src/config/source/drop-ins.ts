/**
 * Drop-ins: `pools.d/20-bulk.yaml` changes parts of `pools.yaml` (config/README.md "Rules of the files"). Maps merge by
 * key, lists of things with a name by that name; other lists replace; null removes. Trees are not changed in place, and
 * every node keeps the position it has in its own file.
 */
import { canonicalIp } from '../../base/ip-address.ts'
import { nodeAt, pathText } from './at-path.ts'
import { emptyMap, type MapEntry, type Position, type SourceNode } from './source-tree.ts'

/** Here null is a value of its own ("off", "never"), and so it stays. A test holds this list against the schema. */
export const NULL_IS_A_VALUE = ['listen.metrics', 'webhooks.disable_after', 'headers.reference', 'backup.schedule']

interface NamedList {
  nameKey: string
  /** In a list of rules the first match counts: what an administrator adds is tried before what is shipped. */
  newItemsComeFirst: boolean
}

export function mergeDropIns(base: SourceNode, dropIns: SourceNode[]): SourceNode {
  const added = new Set<SourceNode>()
  return dropIns.reduce((tree, dropIn) => merge(tree, dropIn, { path: [], added }), base)
}

interface Place {
  path: string[]
  /** Items that drop-ins put in front of a list, in the order of their files. */
  added: Set<SourceNode>
}

function merge(base: SourceNode, change: SourceNode, place: Place): SourceNode {
  const list = namedListAt(place.path)
  if (list !== undefined && change.kind !== 'scalar') return mergeNamedList(base, change, { ...place, list })
  if (base.kind !== 'map' || change.kind !== 'map') return change
  const entries = new Map(base.entries)
  for (const [key, entry] of change.entries) {
    const path = [...place.path, key]
    if (isNull(entry.value) && !NULL_IS_A_VALUE.includes(pathText(path))) entries.delete(key)
    else entries.set(key, mergeEntry(entries.get(key), entry, { ...place, path }))
  }
  return { ...base, entries }
}

/** A new map is merged onto an empty one, so that null means the same inside it. */
function mergeEntry(below: MapEntry | undefined, above: MapEntry, place: Place): MapEntry {
  const value = merge(below?.value ?? emptyMap(above.value.position), above.value, place)
  return { keyPosition: value === above.value ? above.keyPosition : (below ?? above).keyPosition, value }
}

function mergeNamedList(base: SourceNode, change: SourceNode, place: Place & { list: NamedList }): SourceNode {
  const { nameKey, newItemsComeFirst } = place.list
  const known = base.kind === 'list' ? base.items : []
  const items = [...known]
  const fresh: SourceNode[] = []
  for (const { name, node, isRemoval } of itemChanges(change, nameKey)) {
    const index = items.findIndex((item) => name !== undefined && nameOf(item, nameKey) === name)
    const below = items[index]
    if (isRemoval) items.splice(index, below === undefined ? 0 : 1)
    else if (below === undefined) fresh.push(node)
    else items[index] = mergeItem(below, node, place)
  }
  const position = base.kind === 'list' ? base.position : change.position
  if (!newItemsComeFirst) return { kind: 'list', position, items: [...items, ...fresh] }
  const countInFront = items.findIndex((item) => !place.added.has(item))
  const front = countInFront === -1 ? items.length : countInFront
  for (const item of fresh) place.added.add(item)
  return { kind: 'list', position, items: [...items.slice(0, front), ...fresh, ...items.slice(front)] }
}

function mergeItem(below: SourceNode, change: SourceNode, place: Place): SourceNode {
  const merged = merge(below, change, { ...place, path: [...place.path, 'item'] })
  if (place.added.has(below)) place.added.add(merged)
  return merged
}

/** The items of a list, or of a map from name to change; null removes. */
function itemChanges(change: SourceNode, nameKey: string) {
  if (change.kind === 'list') {
    return change.items.map((node) => ({ name: nameOf(node, nameKey), node, isRemoval: false }))
  }
  if (change.kind === 'scalar') return []
  return [...change.entries].map(([name, { value, keyPosition }]) => ({
    name: canonicalIp(name) ?? name,
    node: withName(value, nameKey, { name, position: keyPosition }),
    isRemoval: isNull(value),
  }))
}

/** An item that was written as `name: { … }` gets the key that holds its name. */
function withName(node: SourceNode, nameKey: string, key: { name: string; position: Position }): SourceNode {
  const { name, position } = key
  if (node.kind !== 'map' || node.entries.has(nameKey)) return node
  const entry: MapEntry = { keyPosition: position, value: { kind: 'scalar', position, value: name } }
  return { ...node, entries: new Map([[nameKey, entry], ...node.entries]) }
}

/** Two notations of one IP address are one name. */
function nameOf(node: SourceNode, nameKey: string): string | undefined {
  const name = nodeAt(node, [nameKey])
  if (name?.kind !== 'scalar') return undefined
  return canonicalIp(String(name.value)) ?? String(name.value)
}

function namedListAt(path: string[]): NamedList | undefined {
  const text = pathText(path)
  if (text === 'replies' || text === 'rules') return { nameKey: 'id', newItemsComeFirst: true }
  const isIpsOfPool = path.length === 3 && path[0] === 'pools' && path[2] === 'ips'
  return isIpsOfPool ? { nameKey: 'address', newItemsComeFirst: false } : undefined
}

function isNull(node: SourceNode): boolean {
  return node.kind === 'scalar' && node.value === null
}
