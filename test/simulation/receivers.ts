/**
 * The mail servers of a simulated world: what each one answers, and what it has taken.
 *
 * A server behaves well but for the times in which the story gives it another habit. It counts what its invariants
 * need: connections at once, and every message whose final dot it took, also when nobody heard its answer.
 */
import type { RandomSource } from '../support/random-source.ts'
import { isDead, type Owner } from './virtual-time.ts'

export type Habit =
  | 'greylisting' // 451 to the first RCPT of each message
  | 'deferring' // 452 to RCPT
  | 'refusing' // 550 to RCPT
  | 'closing' // 421 to RCPT, and the connection ends
  | 'limiting' // 421 in place of a banner, beyond two connections
  | 'unreachable' // the connection is refused
  | 'silent' // no connection comes about, after the whole timeout
  | 'dropping' // the connection ends in the dialogue
  | 'losing' // the connection ends behind the final dot, which was taken or not
  | 'slow' // each answer takes seconds
  | 'stalling' // the answer to the final dot takes minutes

/** `site`: the name that all hosts of a server end in. */
export interface HabitTime {
  site: string
  habit: Habit
  from: number
  until: number
  /** Of the messages or connections; 1: all. */
  share: number
}

/** A message that a server took the final dot of. */
export interface Taken {
  messageId: string
  ip: string
  at: number
}

export type Verdict = { kind: 'ok' } | { kind: 'reply'; text: string; closes: boolean } | { kind: 'drop' }

/** A connection ends with the thread that it belongs to, too. */
export interface Connection {
  site: string
  ip: string
  owner: Owner
}

export interface Receivers {
  connect(connection: Connection): 'open' | 'refused' | 'silent' | 'limited'
  disconnect(connection: Connection): void
  /** To RCPT. */
  judge(connection: Connection, messageId: string): Verdict
  /** To the final dot: `isHeard` says whether the answer arrives. */
  take(connection: Connection, messageId: string): { isTaken: boolean; isHeard: boolean }
  /** In milliseconds; `isToDot`: to the final dot. */
  answerTime(site: string, isToDot?: boolean): number
  takenOf(messageId: string): readonly Taken[]
}

export interface ReceiversOptions {
  habits: readonly HabitTime[]
  random: RandomSource
  now: () => number
  onRecipient: (connection: Connection, messageId: string) => void
  onTaken: (taken: Taken, earlier: readonly Taken[]) => void
  /** So many connections of the IP to the site are open now. */
  onConnection: (connection: Connection, count: number) => void
}

const OK: Verdict = { kind: 'ok' }
/** Milliseconds. */
const FAST = 2
const SLOW = 4_000
const STALLED = 240_000
/** Connections that a limiting server takes of one IP. */
const MOST_OF_LIMITING = 2

export function createReceivers(options: ReceiversOptions): Receivers {
  const { habits, random, now } = options
  const known = new Set<string>()
  const taken = new Map<string, Taken[]>()
  const open = new Map<string, Set<Connection>>()

  function has(site: string, habit: Habit): boolean {
    const at = now()
    const found = habits.find(
      (each) => each.habit === habit && each.site === site && each.from <= at && at < each.until,
    )
    return found !== undefined && (found.share >= 1 || random.next() < found.share)
  }

  function openOf({ site, ip }: Connection): Set<Connection> {
    const key = `${ip} ${site}`
    const connections = open.get(key) ?? new Set()
    open.set(key, connections)
    for (const each of connections) if (isDead(each.owner)) connections.delete(each)
    return connections
  }

  return {
    connect(connection) {
      const { site } = connection
      if (has(site, 'unreachable')) return 'refused'
      if (has(site, 'silent')) return 'silent'
      const connections = openOf(connection)
      if (connections.size >= MOST_OF_LIMITING && has(site, 'limiting')) return 'limited'
      connections.add(connection)
      options.onConnection(connection, connections.size)
      return 'open'
    },
    disconnect: (connection) => void openOf(connection).delete(connection),
    judge(connection, messageId) {
      const { site } = connection
      options.onRecipient(connection, messageId)
      if (has(site, 'greylisting') && !known.has(messageId)) {
        known.add(messageId)
        return reply('451 4.7.1 Greylisted, please try again later')
      }
      if (has(site, 'deferring')) return reply('452 4.2.2 The mailbox is full')
      if (has(site, 'refusing')) return reply('550 5.1.1 No such user')
      if (has(site, 'closing')) return { ...reply('421 4.3.2 Closing'), closes: true }
      if (has(site, 'dropping')) return { kind: 'drop' }
      return OK
    },
    take({ site, ip }, messageId) {
      const isLost = has(site, 'losing')
      const isTaken = !isLost || random.next() < 0.5
      if (isTaken) {
        const earlier = taken.get(messageId) ?? []
        const one = { messageId, ip, at: now() }
        taken.set(messageId, [...earlier, one])
        options.onTaken(one, earlier)
      }
      return { isTaken, isHeard: !isLost }
    },
    answerTime(site, isToDot = false) {
      if (isToDot && has(site, 'stalling')) return random.next() * STALLED
      return random.next() * (has(site, 'slow') ? SLOW : FAST)
    },
    takenOf: (messageId) => taken.get(messageId) ?? [],
  }
}

function reply(text: string): Extract<Verdict, { kind: 'reply' }> {
  return { kind: 'reply', text, closes: false }
}
