/** What paths are under (limits, suspensions), kept so that a restart forgets none of it. The state is opaque here. */
import type { Database } from 'better-sqlite3'
import type { PathStateRecord } from '../../records/warmup-records.ts'

export function createLoadPathStates(database: Database): () => PathStateRecord[] {
  const find = database.prepare<[], PathStateRecord>('select ip, route, state, saved_at as savedAt from path_states')
  return () => find.all()
}

/** An empty state forgets the path. */
export function createSavePathStates(database: Database): (states: PathStateRecord[]) => void {
  const save = database.prepare(`
    insert into path_states (ip, route, state, saved_at)
    values (@ip, @route, @state, @savedAt)
    on conflict do update set state = excluded.state, saved_at = excluded.saved_at`)
  const forget = database.prepare<[string, string]>('delete from path_states where ip = ? and route = ?')
  return (states) => {
    for (const path of states) {
      if (path.state === '') forget.run(path.ip, path.route)
      else save.run(path)
    }
  }
}
