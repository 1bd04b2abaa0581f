/** Opens the engine that a location names. Throws ProcessExit as that one does. */
import type { MessagePort } from 'node:worker_threads'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import type { OpenEngine } from '../engine/open-engine.ts'
import { openSqliteEngine } from '../sqlite/sqlite-engine.ts'
import type { StoreLocation } from '../store-location.ts'

/** The driver of PostgreSQL is loaded where it is needed. `notes`: where EngineNotes go; null: nowhere. */
export async function openEngine(location: StoreLocation, notes: MessagePort | null = null): Promise<OpenEngine> {
  if (location.engine === 'sqlite') return openSqliteEngine(location)
  const { openPostgresEngine } = await import('../postgresql/postgres-engine.ts')
  return openPostgresEngine(location, notes)
}

/** In `meta` while data moves here; its value: the epoch of where it comes from. */
export const MOVE_MARK = 'move'

/** Half of the mail would be taken for all of it. Closes the engine before it throws. */
export function refuseUnfinishedMove(engine: Pick<OpenEngine, 'reader' | 'close'>): void {
  try {
    requireWhole(engine)
  } catch (thrown) {
    engine.close()
    throw thrown
  }
}

/** Throws ProcessExit 78 for a database that a move was not finished into. */
export function requireWhole({ reader }: Pick<OpenEngine, 'reader'>): void {
  if (reader.prepare<[string]>('select value from meta where name = ?').get(MOVE_MARK) === undefined) return
  const fix = 'run the same sternpost migrate --to again'
  throw new ProcessExit(
    EXIT.configuration,
    `data was being moved into this database, and not all of it is here: ${fix}`,
  )
}
