/**
 * The same into the file of SQLite: made in a folder beside it, where a move that was killed goes on, and put in its place
 * when it is whole. The database that is there is moved aside.
 */
import { existsSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { timeStamp } from '../backup-archive.ts'
import { placeDatabase } from '../sqlite/backup/restore.ts'
import { databasePath, lockDatabase } from '../sqlite/engine/database.ts'
import type { PostgresLocation, SqliteLocation } from '../store-location.ts'
import { moveData, type MoveProgress, type MoveSummary } from './move-data.ts'

interface MoveToFileOptions {
  from: PostgresLocation
  /** Where the database is to be. */
  to: SqliteLocation
  now: number
  onProgress: (progress: MoveProgress) => void
}

const WORK_FOLDER = '.move-unfinished'
const FOLDER_MODE = 0o700

/** `movedTo`: where the database is that was there before, or null. */
export async function moveToFile(options: MoveToFileOptions): Promise<MoveSummary & { movedTo: string | null }> {
  const { from, to, now, onProgress } = options
  mkdirSync(to.folder, { recursive: true, mode: FOLDER_MODE })
  const lock = lockDatabase(to)
  try {
    const work = join(to.folder, WORK_FOLDER)
    // What a move leaves that was killed when its database had been placed.
    if (!existsSync(databasePath({ folder: work }))) rmSync(work, { recursive: true, force: true })
    const summary = await moveData({ from, to: { ...to, folder: work }, isOwn: true, onProgress })
    const movedTo = placeDatabase(work, to.folder, `before-move-${timeStamp(now)}`)
    rmSync(work, { recursive: true, force: true })
    return { ...summary, movedTo }
  } finally {
    lock.close()
  }
}
