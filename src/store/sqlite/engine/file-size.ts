/**
 * The size of the database's file, and what is cut off it. The file is made with `auto_vacuum = incremental`: pages of
 * deleted rows are used again first, and the file itself becomes smaller at the next checkpoint.
 */
import { statSync } from 'node:fs'
import type { Database } from 'better-sqlite3'
import { createSlice } from '../../verbs/retention/walk-oldest.ts'
import type { Verb } from '../../verbs/tools/verb-types.ts'

/** One step: about a millisecond. */
const PAGES_AT_ONCE = 32

export function createDatabaseSize(database: Database): Verb<'databaseSize'> {
  const pageBytes = Number(database.pragma('page_size', { simple: true }))
  return () => {
    const pages = Number(database.pragma('page_count', { simple: true }))
    const free = Number(database.pragma('freelist_count', { simple: true }))
    const logBytes = statSync(`${database.name}-wal`, { throwIfNoEntry: false })?.size ?? 0
    return { fileBytes: pages * pageBytes, usedBytes: (pages - free) * pageBytes, logBytes }
  }
}

/**
 * Cuts off free pages, a few at a time, until at most `keptBytes` of them are left; returns how many bytes went.
 */
export function createGiveBackPages(database: Database): Verb<'giveBackPages'> {
  const pageBytes = Number(database.pragma('page_size', { simple: true }))
  const countFree = (): number => Number(database.pragma('freelist_count', { simple: true }))
  return (keptBytes, limit) => {
    const slice = createSlice(limit)
    const first = countFree()
    let free = first
    while (slice.hasRoom() && (free - PAGES_AT_ONCE) * pageBytes > keptBytes) {
      database.pragma(`incremental_vacuum(${PAGES_AT_ONCE})`)
      const left = countFree()
      slice.note(PAGES_AT_ONCE)
      // A file without the mode keeps its pages.
      if (left === free) break
      free = left
    }
    return (first - free) * pageBytes
  }
}
