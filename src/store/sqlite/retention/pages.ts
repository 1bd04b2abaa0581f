/**
 * The size of the database file, and giving pages back that hold nothing any more.
 *
 * The file is made with `auto_vacuum = incremental`: pages of deleted rows are used again first, and what is free
 * beyond that is cut off here, a few pages at a time. The file itself becomes smaller at the next checkpoint.
 */
import { statSync } from 'node:fs'
import type { Database } from 'better-sqlite3'
import type { DatabaseSize } from '../../records/retention-records.ts'
import { createSlice } from './slice.ts'

/** One step: about a millisecond. */
const PAGES_AT_ONCE = 32

export function createDatabaseSize(database: Database): () => DatabaseSize {
  const pageBytes = Number(database.pragma('page_size', { simple: true }))
  return () => {
    const pages = Number(database.pragma('page_count', { simple: true }))
    const free = Number(database.pragma('freelist_count', { simple: true }))
    const logBytes = statSync(`${database.name}-wal`, { throwIfNoEntry: false })?.size ?? 0
    return { fileBytes: pages * pageBytes, usedBytes: (pages - free) * pageBytes, logBytes }
  }
}

/** Cuts off free pages until at most `keptBytes` of them are left; returns how many bytes went. */
export function createGiveBackPages(database: Database): (request: { keptBytes: number; limit: number }) => number {
  const pageBytes = Number(database.pragma('page_size', { simple: true }))
  const countFree = (): number => Number(database.pragma('freelist_count', { simple: true }))
  return ({ keptBytes, limit }) => {
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
