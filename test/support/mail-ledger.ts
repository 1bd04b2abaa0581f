/**
 * Holds what was answered against what became of it: each message that was accepted has to end once, what was delivered
 * has to have arrived once, and nothing may arrive that was not accepted. A second copy is excused when the message says
 * that it may be one; a message that nobody knows of, when the answer to its request was lost.
 */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { identifierFromBytes } from '../../src/base/identifier.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { readReturnPathToken } from '../../src/mail/message-token.ts'
import { CAPTURE_POOL } from '../../src/mail/simulator.ts'
import { MASTER_KEY } from './serve-process.ts'

export interface MailLedger {
  /** Ids of all answers of success. */
  readonly accepted: ReadonlySet<string>
  /** Ids of what arrived, with the number of copies. */
  readonly arrived: ReadonlyMap<string, number>
  accept(id: string): void
  /** A request for this recipient got no answer: it may have been accepted all the same. */
  doubt(recipient: string): void
  /** A mail was taken with 250, or may have been. */
  arrive(from: string, to: string): void
  /** Messages that are not final yet, a thousand at most. */
  unfinished(databaseFolder: string): UnfinishedMessage[]
  /** What does not hold, one line each. */
  judge(databaseFolder: string): string[]
}

export interface UnfinishedMessage {
  recipient: string
  domain: string
  state: string
  attempts: number
}

interface Row {
  id: Buffer
  state: string
  recipient: string
  isPossibleDuplicate: number
  isCaptured: number
  /** Kinds of events that end a message, in their order. */
  ends: string | null
}

const OPEN = `
  select recipient, recipient_domain as domain, state, attempts
  from messages where state in ('waiting', 'sending') limit 1000`
const ROWS = `
  select messages.id, messages.state, messages.recipient, possible_duplicate as isPossibleDuplicate,
    pools.name = '${CAPTURE_POOL}' as isCaptured,
    (select group_concat(kind, ' ') from (select kind from events where message_seq = messages.seq
      and kind in ('email.delivered', 'email.bounced', 'email.suppressed', 'email.canceled') order by event_seq)) as ends
  from messages join pools using (pool_id)`
const GOOD_ENDS = [
  'email.delivered',
  'email.bounced',
  'email.bounced email.suppressed',
  'email.canceled',
  // A bounce that came by mail.
  'email.delivered email.bounced',
]

export function createMailLedger(): MailLedger {
  const bounceKey = createKeyRing(Buffer.from(MASTER_KEY, 'base64')).key('bounce')
  const accepted = new Set<string>()
  const doubtful = new Set<string>()
  const arrived = new Map<string, number>()
  const strangers: string[] = []
  return {
    accepted,
    arrived,
    accept: (id) => void accepted.add(id),
    doubt: (recipient) => void doubtful.add(recipient),
    arrive(from, to) {
      const id = readReturnPathToken(from.slice('b-'.length, from.indexOf('@')), bounceKey)
      if (id === undefined) strangers.push(`a mail from ${from} to ${to} is of no message`)
      else arrived.set(id, (arrived.get(id) ?? 0) + 1)
    },
    unfinished: (databaseFolder) =>
      read(databaseFolder, (database) => database.prepare<[], UnfinishedMessage>(OPEN).all()),
    judge: (databaseFolder) =>
      read(databaseFolder, (database) => {
        const faults = [...strangers]
        const stored = new Set<string>()
        for (const row of database.prepare<[], Row>(ROWS).iterate()) {
          const id = identifierFromBytes('msg', row.id)
          stored.add(id)
          if (!accepted.has(id) && !doubtful.has(row.recipient))
            faults.push(`${id} to ${row.recipient} was not accepted`)
          const fault = faultOf(row, arrived.get(id) ?? 0)
          if (fault !== null) faults.push(`${id} to ${row.recipient}: ${fault}`)
        }
        const gone = [...accepted, ...arrived.keys()].filter((id) => !stored.has(id))
        return [...faults, ...gone.map((id) => `${id} is not there`)]
      }),
  }
}

function faultOf({ state, ends, isPossibleDuplicate, isCaptured }: Row, copies: number): string | null {
  if (state === 'waiting' || state === 'sending') return `it is ${state}`
  if (!GOOD_ENDS.includes(ends ?? '')) return `it is ${state} with the events ${ends}`
  if (isPossibleDuplicate === 1) return null
  const expected = ends?.startsWith('email.delivered') === true && isCaptured === 0 ? 1 : 0
  return copies === expected ? null : `it is ${state} and arrived ${copies} times`
}

function read<Result>(databaseFolder: string, look: (database: Sqlite.Database) => Result): Result {
  const database = new Sqlite(join(databaseFolder, 'sternpost.db'), { readonly: true, timeout: 60_000 })
  try {
    return look(database)
  } finally {
    database.close()
  }
}
