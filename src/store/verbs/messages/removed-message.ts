/** What is still known of a message that retention removed and whose links may be followed: its trace. */
import type { Database } from '../../engine/database.ts'

interface RemovedMessage {
  /** It has no row any more. */
  seq: null
  recipient: string
  recipientDomain: string
  list: string | null
  isTest: number
  /** When it ended. */
  endedAt: number
}

/** By its id. */
export function createFindRemoved(database: Database) {
  return database.prepare<[Buffer], RemovedMessage>(`
    select
      null as seq, traces.recipient, substr(traces.recipient, instr(traces.recipient, '@') + 1) as recipientDomain,
      contents.unsubscribe_list as list, contents.is_test as isTest, traces.ended_at as endedAt
    from traces
    cross join contents on contents.content_id = traces.content_id
    where traces.id = ?`)
}
