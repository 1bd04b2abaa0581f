/** What stands at a path of a tree, and where; undefined, or empty, where there is nothing of that kind. */
import type { MapEntry, Position, SourceNode, SourcePath } from './source-tree.ts'

export function nodeAt(root: SourceNode, path: SourcePath): SourceNode | undefined {
  let node: SourceNode | undefined = root
  for (const step of path) {
    if (node?.kind === 'map') node = node.entries.get(String(step))?.value
    else if (node?.kind === 'list') node = node.items[Number(step)]
    else return undefined
  }
  return node
}

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

export function entriesAt(root: SourceNode, path: SourcePath): [string, MapEntry][] {
  const node = nodeAt(root, path)
  return node?.kind === 'map' ? [...node.entries] : []
}

export function itemsAt(root: SourceNode, path: SourcePath): SourceNode[] {
  const node = nodeAt(root, path)
  return node?.kind === 'list' ? node.items : []
}

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
