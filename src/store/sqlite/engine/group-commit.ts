/**
 * Many verbs, one transaction, one flush of the disk; how long a group waits for company and where it ends:
 * store/README.md "Verbs and transactions". Answers go out after the commit.
 *
 * A verb that throws is undone and rejected alone. SQLite copies every page that a savepoint changes, and nearly no
 * verb throws: so a group runs without savepoints, and only one in which a verb threw is undone whole and run again
 * with a savepoint each. A verb keeps nothing in memory that a rollback does not undo, but for the number of the last
 * claim.
 */
import type { Database } from 'better-sqlite3'

/** A verb call that writes, as it waits for its group. */
export interface PendingVerb {
  run(): unknown
  resolve(value: unknown): void
  reject(thrown: unknown): void
  /** Messages that this call accepts. */
  messages: number
  /** Rows it is about, at least 1. */
  rows: number
  /** Estimated size of its argument. */
  bytes: number
}

/** What one group was, for the metrics. */
export interface CommitReport {
  verbs: number
  messages: number
  /** From the first verb to the end of the commit. */
  seconds: number
}

interface GroupCommitOptions {
  database: Database
  /** The longest time between the beginnings of two groups that a verb waits for company. */
  lingerMilliseconds: number
  mostRows: number
  /** Monotonic milliseconds. */
  now: () => number
  /** Throws when what is committed would not be found again. Asked before each group and before its answers. */
  requireInPlace: () => void
  /** Called after each commit, before the answers. */
  onCommit: (report: CommitReport) => void
  /** Called when the answers of a group or two have left, outside a transaction, with the bytes of their arguments. */
  afterGroup: (bytes: number) => void
}

const MOST_BYTES = 4 * 1_024 * 1_024
const MOST_WORK_MILLISECONDS = 5
/** After a pause this long no company is expected. */
const REST_MILLISECONDS = 50
/** Of the time under load, the groups take one part in so many, unless the linger time is shorter. */
const TIMES_A_GROUP = 4

export type GroupCommit = ReturnType<typeof createGroupCommit>

export function createGroupCommit(options: GroupCommitOptions) {
  const runGroup = createGroupRunner(options)
  let waiting: PendingVerb[] = []
  /** Of the last group: whether several verbs shared it; of the last one with acceptances: how many. */
  let hadCompany = false
  let accepted = 0
  let previousStart = 0
  let previousEnd = 0
  let turn: NodeJS.Immediate | undefined
  let linger: NodeJS.Timeout | undefined
  let afterwards: NodeJS.Immediate | undefined
  let bytesAnswered = 0

  const commit = (): void => {
    clearTimeout(linger)
    linger = undefined
    previousStart = options.now()
    const taken = runGroup(waiting)
    const acceptances = countAcceptances(waiting, taken)
    bytesAnswered += sizeOf(waiting, taken)
    if (acceptances > 0) accepted = acceptances
    waiting = waiting.slice(taken)
    // What did not fit has waited already: it goes next, without company.
    hadCompany = waiting.length === 0 && taken > 1
    previousEnd = options.now()
    // Answers leave at the end of this turn of the event loop: they wait for nothing else.
    afterwards ??= setImmediate(follow)
    if (waiting.length > 0) schedule()
  }
  const follow = (): void => {
    const bytes = bytesAnswered
    afterwards = undefined
    bytesAnswered = 0
    options.afterGroup(bytes)
  }
  /** One turn of the event loop first: calls that have arrived already belong to this group. */
  const schedule = (): void => {
    turn ??= setImmediate(() => {
      turn = undefined
      if (waiting.length === 0) return
      const patience = expectsCompany() ? nextStart() - options.now() : 0
      if (patience <= 0) commit()
      else linger ??= setTimeout(commit, patience)
    })
  }
  const nextStart = (): number =>
    previousStart + Math.min(options.lingerMilliseconds, (previousEnd - previousStart) * TIMES_A_GROUP)
  const expectsCompany = (): boolean =>
    options.lingerMilliseconds > 0 &&
    hadCompany &&
    options.now() - previousEnd < REST_MILLISECONDS &&
    (accepted > 1 || countAcceptances(waiting, waiting.length) !== 1) &&
    groupLength(waiting, options.mostRows) === waiting.length

  return {
    add(verbs: PendingVerb[]): void {
      waiting.push(...verbs)
      schedule()
    },
    /** Runs what waits, at once. */
    finish(): void {
      clearImmediate(turn)
      turn = undefined
      while (waiting.length > 0) commit()
      clearImmediate(turn)
      clearImmediate(afterwards)
    },
  }
}

/** Commits the first of these verbs that fit into one group and answers them; returns how many it took. */
function createGroupRunner(options: GroupCommitOptions): (waiting: readonly PendingVerb[]) => number {
  const { database } = options
  const begin = database.prepare('begin immediate')
  const commit = database.prepare('commit')
  const rollback = database.prepare('rollback')
  const runAlone = createVerbRunner(database)

  return (waiting) => {
    const start = options.now()
    let group = waiting.slice(0, groupLength(waiting, options.mostRows))
    let taken = 0
    let done: Done[] = []
    try {
      options.requireInPlace()
      begin.run()
      try {
        for (const verb of group) {
          if (taken > 0 && options.now() - start > MOST_WORK_MILLISECONDS) break
          taken += 1
          done.push({ verb, isKept: true, value: verb.run() })
        }
      } catch (thrown) {
        // A full disk or a failed read ends the transaction itself: whatever ran before is undone too.
        if (!database.inTransaction) throw thrown
        rollback.run()
        begin.run()
        group = group.slice(0, taken)
        done = group.map(runAlone)
      }
      commit.run()
      options.requireInPlace()
    } catch (thrown) {
      if (database.inTransaction) rollback.run()
      // Nothing ran when the transaction could not even begin: then all of them have waited in vain.
      if (taken === 0) taken = waiting.length
      for (const verb of waiting.slice(0, taken)) verb.reject(thrown)
      return taken
    }
    const messages = done.reduce((sum, { verb, isKept }) => sum + (isKept ? verb.messages : 0), 0)
    options.onCommit({ verbs: taken, messages, seconds: (options.now() - start) / 1_000 })
    for (const { verb, isKept, value } of done) {
      if (isKept) verb.resolve(value)
      else verb.reject(value)
    }
    return taken
  }
}

/** A verb that ran: `value` is its answer, or what it threw. */
interface Done {
  verb: PendingVerb
  isKept: boolean
  value: unknown
}

/** Runs one verb in a savepoint. Throws only when SQLite gave up the whole transaction. */
function createVerbRunner(database: Database): (verb: PendingVerb) => Done {
  const savepoint = database.prepare('savepoint verb')
  const release = database.prepare('release verb')
  const undo = database.prepare('rollback to verb')
  return (verb) => {
    savepoint.run()
    try {
      const value = verb.run()
      release.run()
      return { verb, isKept: true, value }
    } catch (thrown) {
      if (!database.inTransaction) throw thrown
      undo.run()
      release.run()
      return { verb, isKept: false, value: thrown }
    }
  }
}

/** Of the first of these verbs, how many accept messages. */
function countAcceptances(verbs: readonly PendingVerb[], first: number): number {
  let count = 0
  for (let index = 0; index < first; index += 1) if ((verbs[index]?.messages ?? 0) > 0) count += 1
  return count
}

function sizeOf(verbs: readonly PendingVerb[], first: number): number {
  let bytes = 0
  for (let index = 0; index < first; index += 1) bytes += verbs[index]?.bytes ?? 0
  return bytes
}

/** How many of these verbs fit by rows and bytes; at least one. */
function groupLength(waiting: readonly PendingVerb[], mostRows: number): number {
  let rows = 0
  let bytes = 0
  const end = waiting.findIndex((verb, index) => {
    rows += verb.rows
    bytes += verb.bytes
    return index > 0 && (rows > mostRows || bytes > MOST_BYTES)
  })
  return end === -1 ? waiting.length : end
}
