/**
 * Many verbs, one transaction, one flush of the disk; how long a group waits for company and where it ends:
 * store/README.md "Verbs and transactions". Answers go out after the commit.
 *
 * A verb that throws is undone and rejected alone. SQLite copies every page that a savepoint changes, and nearly no
 * verb throws: so a group runs without savepoints, and only one in which a verb threw is undone whole and run again
 * with a savepoint each. A verb keeps nothing in memory that a rollback does not undo, but for the number of the last
 * claim.
 */
import { ServiceError } from '../../base/errors.ts'
import type { WritingDatabase } from '../engine/open-engine.ts'
import { LateAnswer } from '../verbs/tools/late-answer.ts'

/** A verb call that writes, as it waits for its group. */
export interface PendingVerb {
  run(): unknown
  /** Verbs with the same one run as one, over their requests; left out: this one runs alone. */
  together?: (requests: readonly unknown[]) => unknown[]
  request?: unknown
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
  database: WritingDatabase
  /** The longest time between the beginnings of two groups that a verb waits for company. */
  lingerMilliseconds: number
  mostRows: number
  /** A group that has worked for so long ends: acceptances wait for its commit. */
  mostWorkMilliseconds: number
  /** Monotonic milliseconds. */
  now: () => number
  /** Throws when what is committed would not be found again. Asked before each group and before its answers. */
  requireInPlace: () => void
  /** See OpenEngine. */
  isLate: (thrown: unknown) => boolean
  /** See OpenEngine. */
  wasCommitted: (thrown: unknown) => boolean | null | undefined
  /** Called after each commit, before the answers. */
  onCommit: (report: CommitReport) => void
  /** Called when the answers of a group or two have left, outside a transaction, with the bytes of their arguments. */
  afterGroup: (bytes: number) => void
}

const DOUBT_PAUSE_MILLISECONDS = 200
const RETRY_SOON = { headers: { 'Retry-After': '2' } }
const MOST_BYTES = 4 * 1_024 * 1_024
/** After a pause this long no company is expected. */
const REST_MILLISECONDS = 50
/** So many messages are accepted in about 2 ms. */
const MOST_URGENT_ROWS = 16
/** Of the time under load, the groups take one part in so many, unless the linger time is shorter. */
const TIMES_A_GROUP = 2

export type GroupCommit = ReturnType<typeof createGroupCommit>

export function createGroupCommit(options: GroupCommitOptions) {
  const doubts = createDoubts(options.wasCommitted)
  const runGroup = createGroupRunner(options, doubts)
  let waiting: PendingVerb[] = []
  // Of the last group: several verbs shared it; it had acceptances only, while others waited. Of the last one with
  // acceptances: how many.
  let [hadCompany, owesOthers] = [false, false]
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
    if (!doubts.settle()) {
      // What runs now would hide whether the one in doubt happened.
      for (const verb of waiting.splice(0)) verb.reject(new ServiceError('unavailable', '', RETRY_SOON))
      return
    }
    const length = groupLength(waiting, options.mostRows)
    waiting = [...ordered(waiting.slice(0, length), owesOthers), ...waiting.slice(length)]
    const taken = runGroup(waiting)
    const acceptances = countAcceptances(waiting, taken)
    owesOthers = acceptances === taken && taken < waiting.length
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
      doubts.giveUp()
      clearImmediate(turn)
      clearImmediate(afterwards)
    },
  }
}

/** A group that threw: its commit may have happened all the same. */
interface Doubt {
  thrown: unknown
  /** It happened. */
  answer(): void
  reject(): void
}

/** The answers of a group wait until it is known; of one at most, since nothing runs behind it until then. */
function createDoubts(wasCommitted: GroupCommitOptions['wasCommitted']) {
  let doubt: Doubt | null = null
  let timer: NodeJS.Timeout | undefined
  const settle = (): boolean => {
    clearTimeout(timer)
    if (doubt === null) return true
    const isCommitted = wasCommitted(doubt.thrown)
    if (isCommitted === null) {
      timer = setTimeout(settle, DOUBT_PAUSE_MILLISECONDS)
      return false
    }
    if (isCommitted === true) doubt.answer()
    else doubt.reject()
    doubt = null
    return true
  }
  return {
    /** false: it is not known yet. It is asked again by itself. */
    settle,
    add(added: Doubt): void {
      doubt = added
      settle()
    },
    giveUp(): void {
      clearTimeout(timer)
      doubt?.reject()
    },
  }
}

type Doubts = ReturnType<typeof createDoubts>

/** Commits the first of these verbs that fit into one group, and answers them; returns how many. */
function createGroupRunner(options: GroupCommitOptions, doubts: Doubts): (waiting: readonly PendingVerb[]) => number {
  const { database } = options
  const rollback = database.prepare('rollback')
  const runGroup = createGroupTransaction(options)

  return (waiting) => {
    const start = options.now()
    const progress: Progress = { taken: 0, done: [] }
    const answer = (): void => {
      const { taken, done } = progress
      const messages = done.reduce((sum, { verb, isKept }) => sum + (isKept ? verb.messages : 0), 0)
      options.onCommit({ verbs: taken, messages, seconds: (options.now() - start) / 1_000 })
      for (const each of done) answerVerb(each)
    }
    try {
      options.requireInPlace()
      runGroup(waiting.slice(0, groupLength(waiting, options.mostRows)), start, progress)
      options.requireInPlace()
    } catch (thrown) {
      if (database.inTransaction) rollback.run()
      // Nothing ran when the transaction could not even begin: then all of them have waited in vain.
      const taken = progress.taken === 0 ? waiting : waiting.slice(0, progress.taken)
      const reject = (): void => {
        for (const verb of taken) verb.reject(thrown)
      }
      doubts.add({ thrown, answer, reject })
      return taken.length
    }
    answer()
    return progress.taken
  }
}

interface Progress {
  taken: number
  done: Done[]
}

/** One transaction over a group, noted in `progress`; run again verb by verb when one of them fails. */
function createGroupTransaction({ database, now, isLate, mostWorkMilliseconds }: GroupCommitOptions) {
  const begin = database.prepare('begin immediate')
  const commit = database.prepare('commit')
  const rollback = database.prepare('rollback')
  const runAlone = createVerbRunner(database)
  const mostTogether = mostWorkMilliseconds * TOGETHER_A_MILLISECOND

  return (group: readonly PendingVerb[], start: number, progress: Progress): void => {
    begin.run()
    let isCommitting = false
    try {
      for (const part of partsOf(group, mostTogether)) {
        if (progress.taken > 0 && now() - start > mostWorkMilliseconds) break
        progress.taken += part.length
        const values = valuesOf(part)
        progress.done.push(...part.map((verb, index) => ({ verb, isKept: true, value: values[index] })))
      }
      isCommitting = true
      commit.run()
    } catch (thrown) {
      // A full disk or a failed read ends the transaction itself: whatever ran before is undone too.
      const isOfVerb = isCommitting ? isLate(thrown) : database.inTransaction
      if (!isOfVerb) throw thrown
      if (database.inTransaction) rollback.run()
      begin.run()
      progress.done = group.slice(0, progress.taken).map(runAlone)
      commit.run()
    }
  }
}

/** Of the work that a group may do: so many at once are about a fifth of it. */
const TOGETHER_A_MILLISECOND = 3.2
/** With SQLite each runs alone: up to 50 outcomes, some 10 ms. */
const FEWER_BEHIND_ACCEPTANCES = 16

/**
 * Those that stand one behind the other and run as one, so many at most; behind acceptances, which wait for the end
 * of the group, fewer.
 */
function* partsOf(group: readonly PendingVerb[], most: number): Generator<readonly PendingVerb[]> {
  const hasAcceptances = countAcceptances(group, 1) > 0
  let start = 0
  while (start < group.length) {
    const { together } = group[start] ?? {}
    const mostHere = hasAcceptances && group[start]?.messages === 0 ? most / FEWER_BEHIND_ACCEPTANCES : most
    let end = start + 1
    while (together !== undefined && end < start + mostHere && group[end]?.together === together) end += 1
    yield group.slice(start, end)
    start = end
  }
}

function valuesOf(part: readonly PendingVerb[]): unknown[] {
  const { together } = part[0] ?? {}
  if (together === undefined || part.length === 1) return part.map((verb) => verb.run())
  return together(part.map(({ request }) => request))
}

/**
 * Calls came side by side, so their order is free. Some acceptances stand first, for whoever sends waits for their
 * answer, unless the others have waited for such already.
 */
function ordered(verbs: readonly PendingVerb[], owesOthers: boolean): PendingVerb[] {
  let rows = 0
  const isUrgent = ({ messages, rows: own }: PendingVerb): boolean => {
    if (messages === 0 || rows + own > MOST_URGENT_ROWS) return false
    rows += own
    return true
  }
  const { urgent = [], others = [] } = Object.groupBy(verbs, (verb) => (isUrgent(verb) ? 'urgent' : 'others'))
  return (owesOthers ? [others, urgent] : [urgent, others]).flatMap(gathered)
}

/** Those that run as one stand where the first of them stood. */
function gathered(verbs: readonly PendingVerb[]): PendingVerb[] {
  const places = new Map<unknown, PendingVerb[]>()
  const lists = verbs.map((verb) => {
    const list = verb.together === undefined ? undefined : places.get(verb.together)
    if (list !== undefined) {
      list.push(verb)
      return []
    }
    const own = [verb]
    if (verb.together !== undefined) places.set(verb.together, own)
    return own
  })
  return lists.flat()
}

/** A verb that ran: `value` is its answer, or what it threw. */
interface Done {
  verb: PendingVerb
  isKept: boolean
  value: unknown
}

function answerVerb({ verb, isKept, value }: Done): void {
  if (!isKept) return verb.reject(value)
  if (!(value instanceof LateAnswer)) return verb.resolve(value)
  try {
    verb.resolve(value.read())
  } catch (cause) {
    verb.reject(new ServiceError('unavailable', 'the answer of the database was lost', { ...RETRY_SOON, cause }))
  }
}

/** Runs one verb in a savepoint. Throws only when SQLite gave up the whole transaction. */
function createVerbRunner(database: WritingDatabase): (verb: PendingVerb) => Done {
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
