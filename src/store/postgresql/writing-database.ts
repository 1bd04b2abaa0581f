/**
 * The connection that writes, with its transactions as the group commit begins and ends them. The begin of one travels
 * with its first question, and its end with whatever was not asked for.
 *
 * Of all nodes one writes at a time, from its first question to its commit (`begin_writing`): rows are numbered in the
 * order of commits, and a node that was declared dead commits nothing.
 *
 * Whether a commit happened whose answer is lost is asked later. Each commit leaves a number of its own
 * (`last_commits`): once the connection is there again, which it is only after the earlier one has ended at the server,
 * that number tells it.
 */
import { ServiceError } from '../../base/errors.ts'
import type { OpenEngine, WritingDatabase } from '../engine/open-engine.ts'
import type { RunResult } from '../engine/database.ts'
import { ConnectionLost, DatabaseChanged, isOfStatement, ServerRefused, type BlockingWire } from './blocking-wire.ts'
import { FIND_COMMIT } from './connection.ts'
import { createPostgresDatabase } from './postgres-database.ts'
import type { RowNumbers } from './row-numbers.ts'
import { createStatementQueue, type StatementQueue } from './statement-queue.ts'
import { COMMIT } from './wire-messages.ts'

const BEGIN_WRITING = 'select begin_writing($1)'
const NOTE_COMMIT = `
  with earlier as (
    delete from last_commits where node_id = $4 and number between $5 and $6 returning turn, last_rows
  )
  insert into last_commits (node_id, number, turn, last_rows)
  select $4, $1, coalesce($2::bigint, turn, 0), coalesce($3::text, last_rows, '{}')
  from (select 1) as one
  left join (select * from earlier order by turn desc limit 1) as newest on true`

interface WritingOptions {
  wire: BlockingWire
  rowNumbers: RowNumbers
  nodeId: string
  erasureKey: Uint8Array | undefined
  /** It happened; with its number. */
  onCommit(number: number): void
}

const NOTHING: RunResult = { changes: 0, lastInsertRowid: 0 }

export function createWritingDatabase(options: WritingOptions): WritingDatabase & Pick<OpenEngine, 'wasCommitted'> {
  const queue = createStatementQueue(options.wire, 'write')
  const transaction = createTransaction(queue, options)
  const { commit, wasCommitted } = createCommits(queue, options, transaction.leave)
  const database = createPostgresDatabase({ ...options, queue: transaction })
  const sendNow = (text: string): void =>
    transaction.guarded(() => {
      queue.sendText(text)
      queue.flush()
    })
  const controls: Readonly<Record<string, () => void>> = {
    'begin immediate': transaction.begin,
    commit,
    rollback: transaction.rollback,
    // What is sent before it outlives the verb: `rollback to verb` forgets what was not.
    'savepoint verb': () => sendNow('savepoint verb'),
    // What the verb did is answered before the next one begins: a failure belongs to it.
    'release verb': () => sendNow('release verb'),
    'rollback to verb'() {
      queue.forget()
      sendNow('rollback to verb')
    },
  }
  return {
    get inTransaction() {
      return transaction.isOpen()
    },
    prepare<Parameters extends unknown[], Row>(sql: string) {
      const statement = database.prepare<Parameters, Row>(sql)
      const control = controls[sql]
      if (control === undefined) return statement
      const run = (): RunResult => {
        control()
        return NOTHING
      }
      return { ...statement, run }
    },
    wasCommitted,
  }
}

/** Begins with the next question, and ends with its connection, or with what the server cannot do now. */
function createTransaction(queue: StatementQueue, { wire: { granted }, rowNumbers, nodeId }: WritingOptions) {
  let isOpen = false
  const leave = (): void => {
    queue.forget()
    isOpen = false
    granted.session = null
  }
  const rollback = (): void => {
    queue.forget()
    queue.sendText('rollback')
    try {
      queue.flush()
    } catch (thrown) {
      // A connection that is gone has taken its transaction along.
      if (!(thrown instanceof ServiceError)) throw thrown
    } finally {
      leave()
    }
  }
  const guarded = <Result>(call: () => Result): Result => {
    // A verb that goes on after its transaction has ended would change rows outside of any.
    if (!isOpen) throw new ServiceError('unavailable', 'the database did not answer')
    try {
      return call()
    } catch (thrown) {
      const isRefused = thrown instanceof ServerRefused || thrown instanceof DatabaseChanged
      if (isRefused && !isOfStatement(thrown)) rollback()
      else if (!isOfStatement(thrown)) leave()
      throw thrown
    }
  }
  return {
    isOpen: () => isOpen,
    begin(): void {
      queue.sendText('begin')
      const begun = queue.sendText(BEGIN_WRITING, [nodeId])
      rowNumbers.beginAfter(() => String(guarded(begun.answer).rows[0]?.[0]))
      isOpen = true
      granted.session = null
    },
    /** It is over, whatever became of it. */
    leave,
    rollback,
    guarded,
    prepared: queue.prepared,
    send: (...given: Parameters<StatementQueue['send']>) => {
      const sent = guarded(() => queue.send(...given))
      // Behind the commit all is answered, or lost.
      return { answer: () => (isOpen ? guarded(sent.answer) : sent.answer()) }
    },
  }
}

/** `leave`: the transaction is over. */
function createCommits(
  queue: StatementQueue,
  { wire: { granted }, rowNumbers, nodeId, onCommit }: WritingOptions,
  leave: () => void,
) {
  // Of this process alone: another one may have counted as far.
  let commits = Date.now() * 1_000
  /** The last one that is known to have happened. */
  let lastCommit: number | null = null
  let lost: { commit: number; thrown: unknown } | undefined
  return {
    commit(): void {
      commits += 1
      const { turn, rows } = rowNumbers.taken() ?? { turn: null, rows: null }
      const known = [lastCommit ?? 0, lastCommit ?? Number.MAX_SAFE_INTEGER]
      queue.sendText(NOTE_COMMIT, [commits, turn, rows, nodeId, ...known])
      queue.sendText(COMMIT)
      try {
        queue.flush()
        granted.lastCommit = lastCommit = commits
        onCommit(commits)
      } catch (thrown) {
        if (thrown instanceof ConnectionLost) lost = { commit: commits, thrown }
        throw thrown
      } finally {
        leave()
      }
    },
    wasCommitted(thrown: unknown): boolean | null | undefined {
      if (lost === undefined || lost.thrown !== thrown) return undefined
      granted.lastCommit = null
      try {
        const found = Number(queue.sendText(FIND_COMMIT, [nodeId]).answer().rows[0]?.[0] ?? 0)
        const isOther = found !== lost.commit && found !== (lastCommit ?? found)
        if (isOther) throw new DatabaseChanged('', 'the last commit of the database is none of this process')
        granted.lastCommit = lastCommit = found
        return found === lost.commit
      } catch (problem) {
        if (problem instanceof ServiceError && !(problem instanceof DatabaseChanged)) return null
        throw problem
      } finally {
        leave()
      }
    },
  }
}
