/** Why a message ended without delivery. Written once for each message, with the change of its state. */
import type { Database } from 'better-sqlite3'
import type { Bounce } from '../../../mail/reply/delivery-outcome.ts'

export function createBounceWriter(database: Database): (messageKey: number, bounce: Bounce) => void {
  const add = database.prepare<[number, string, string, string, string]>(
    'insert into bounces (message_seq, type, category, code, description) values (?, ?, ?, ?, ?)',
  )
  return (messageKey, { type, category, code, description }) => {
    add.run(messageKey, type, category, code, description)
  }
}
