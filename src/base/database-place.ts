/**
 * Whether the files of the open database are still where they were opened: whoever removes or replaces them leaves us
 * with files that nobody finds after the next start, and every commit since would be gone (store/README.md "Full
 * disk").
 */
import { statSync } from 'node:fs'

export const NOT_IN_PLACE = 'the database file was removed or replaced while the server ran'

/** Of an open database; the answer costs some microseconds. */
export function createPlaceWatch(path: string): () => boolean {
  const known = new Map<string, number>()
  return () =>
    [path, `${path}-wal`].every((file) => {
      const inode = statSync(file, { throwIfNoEntry: false })?.ino
      const before = known.get(file)
      if (before === undefined && inode !== undefined) known.set(file, inode)
      return before === undefined || before === inode
    })
}
