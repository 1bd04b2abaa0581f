/**
 * Whom a message or an event belongs to: the sending domain that signs and that of `from`, and whether a test key sent
 * it. An event of no message belongs to the domain it tells of, or to the server itself.
 */
import type { Database } from '../../engine/database.ts'
import { ownerOf, type Owner } from '../../../mail/reach.ts'
import { ask, askAhead } from '../tools/statements.ts'
import { getNamed } from '../tools/stored-identifier.ts'

interface OwnerRow {
  domain: string
  from: string
  isTest: number
}

export const OF_SERVER: Owner = { isTest: false, domains: [] }

export function createOwners(database: Database) {
  const query = (source: 'messages' | 'traces', where: string): string => `
    select lanes.domain, contents.from_address as "from", contents.is_test as isTest
    from ${source}
    cross join contents on contents.content_id = ${source}.content_id
    cross join lanes on lanes.lane_id = ${source}.lane_id
    where ${source}.${where}`
  const find = database.prepare<[number], OwnerRow>(query('messages', 'seq = +?'))
  const findById = database.prepare<[Buffer], OwnerRow>(query('messages', 'id = ?'))
  // Of a removed message.
  const findTrace = database.prepare<[Buffer], OwnerRow>(query('traces', 'id = ?'))
  const toOwner = (row: OwnerRow | undefined): Owner =>
    row === undefined ? OF_SERVER : ownerOf({ ...row, isTest: row.isTest === 1 })
  const ofRow = (key: number): Owner => toOwner(find.get(key))
  const ofMessage = (id: string): Owner => toOwner(getNamed(findById, 'msg', id) ?? getNamed(findTrace, 'msg', id))

  return {
    ofRow,
    ofMessage,
    /** Of a message by its key; what is returned looks at the answer. */
    askAhead(key: number): () => Owner {
      const rows = askAhead(find, key)
      return () => toOwner(rows()[0])
    },
    /** `data` as it is told; only asked for where there is no message. What is returned looks at the answer. */
    askEvent(messageKey: number | null, data: () => Record<string, unknown>): () => Owner {
      if (messageKey !== null) {
        const rows = ask(find, messageKey)
        return () => toOwner(rows()[0])
      }
      const { message_id: messageId, domain } = data()
      if (typeof messageId === 'string') return () => ofMessage(messageId)
      return () => (typeof domain === 'string' ? { isTest: false, domains: [domain] } : OF_SERVER)
    },
  }
}
