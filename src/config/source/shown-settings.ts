/** Every value of a configuration with the place it comes from: a line of a file or drop-in, or the default. Pure. */
import { valueText, type SettingDoc } from './setting-docs.ts'
import { pathText, valueOf, type SourceNode, type SourcePath } from './source-tree.ts'

interface ShownSetting {
  /** `delivery.retry`, `pools.default.ips[0].address` */
  path: string
  value: unknown
  /** As it can be written in a file. */
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
  return [...written, ...defaults].toSorted(byPath)
}

function byPath(left: ShownSetting, right: ShownSetting): number {
  return left.path.localeCompare(right.path, 'en', { numeric: true })
}

/** Maps are opened, and lists of maps; any other list is one value. */
function leavesOf(node: SourceNode, path: SourcePath): ShownSetting[] {
  if (node.kind === 'map' && node.entries.size > 0) {
    return [...node.entries].flatMap(([key, { value }]) => leavesOf(value, [...path, key]))
  }
  const hasMaps = node.kind === 'list' && node.items.some(({ kind }) => kind === 'map')
  if (hasMaps) return node.items.flatMap((item, index) => leavesOf(item, [...path, index]))
  const value = valueOf(node)
  const { file, line } = node.position
  return [{ path: pathText(path), value, text: valueText(value), origin: { file, line } }]
}
