/**
 * Where each IP of pools.yaml stands, for what is found out about it after the files were judged. Files that could not
 * be read give the folder.
 */
import { readFolder } from './read-folder.ts'
import { emptyMap, nearestPosition, pathText, type Position } from './source-tree.ts'

interface IpPlace extends Position {
  /** As in `pools.default.ips[1]`. */
  path: string
}

/** By pool and place in its list. */
export function locateIps(folder: string, shippedFolder: string): (pool: string, index: number) => IpPlace {
  const { trees } = readFolder(folder, shippedFolder, ['pools'])
  const root = trees.pools ?? emptyMap({ file: folder, line: 1, column: 1 })
  return (pool, index) => {
    const path = ['pools', pool, 'ips', index]
    return { ...nearestPosition(root, path), path: pathText(path) }
  }
}
