/**
 * The connection that writes, with its transactions as the group commit begins and ends them. The begin of one travels
 * with its first question, and its end with whatever was not asked for.
 *
 * Of all nodes one writes at a time, from its first question to its commit (`begin_writing`): rows are numbered in the
 * order of commits, and a node that was declared dead commits nothing.
 *
 * A commit whose answer is lost throws CommitUnknown. Each commit leaves a number of its own (`last_commits`): once the
 * connection is there again, which it is only after the earlier one has ended at the server, that number tells whether
 * the commit happened.
 */
import { ServiceError } from '../../base/errors.ts'
import type { WritingDatabase } from '../engine/open-engine.ts'
import type { RunResult, Statement } from '../engine/database.ts'
import { ask } from '../verbs/tools/statements.ts'
import { ConnectionLost, DatabaseChanged, isOfStatement, ServerRefused, type BlockingWire } from './blocking-wire.ts'
import { FIND_COMMIT } from './connection.ts'
import type { PostgresDatabase } from './postgres-database.ts'
import type { RowNumbers } from './row-numbers.ts'

/** Whether this commit happened is asked for later. */
export class CommitUnknown extends ServiceError {
  readonly commit: number

  constructor(commit: number, cause: unknown) {
    super('unavailable', 'the database does not answer', { headers: { 'Retry-After': '2' }, cause })
    this.commit = commit
  }
}

const BEGIN_WRITING = 'select begin_writing($1)'
const NOTE_COMMIT = `
  with earlier as (
    delete from last_commits where node_id = $4 and number between $5 and $6 returning turn, last_rows
  )
  insert into last_commits (node_id, number, turn, last_rows)
  select $4, $1, coalesce($2::bigint, turn, 0), coalesce($3::text, last_rows, '{}')
  from (select 1) as one
  left join (select * from earlier order by turn desc limit 1) as newest on true`

interface PostgresWriter extends WritingDatabase {
  /** true: it happened, false: it did not, null: the server does not answer yet. */
  wasCommitted(commit: number): boolean | null
}

interface Parts {
  database: PostgresDatabase
  granted: BlockingWire['granted']
  rowNumbers: RowNumbers
  nodeId: string
}

export function createWritingDatabase(parts: Parts) {
  const { database } = parts
  const transaction = createTransaction(parts)
  const { guarded } = transaction
  const { commit, wasCommitted } = createCommits(parts, transaction.leave)
  const controls: Readonly<Record<string, () => void>> = {
    'begin immediate': transaction.begin,
    commit,
    rollback: transaction.rollback,
    // What is sent before it outlives the verb: `rollback to verb` forgets what was not.
    'savepoint verb'() {
      database.send('savepoint verb')
      guarded(database.flush)
    },
    // What the verb did is answered before the next one begins: a failure belongs to it.
    'release verb'() {
      database.send('release verb')
      guarded(database.flush)
    },
    'rollback to verb'() {
      database.forget()
      database.send('rollback to verb')
      guarded(database.flush)
    },
  }
  const writer: PostgresWriter = {
    get inTransaction() {
      return transaction.isOpen()
    },
    prepare: <Parameters extends unknown[], Row>(sql: string) => {
      const control = controls[sql]
      if (control !== undefined) return controlStatement(control) as Statement<Parameters, Row>
      return guardedStatement(database.prepare<Parameters, Row>(sql), transaction)
    },
    wasCommitted,
  }
  return writer
}

/** Begins with the next question, and ends with its connection, or with what the server cannot do now. */
function createTransaction({ database, granted, rowNumbers, nodeId }: Parts) {
  let isOpen = false
  const leave = (): void => {
    database.forget()
    isOpen = false
    granted.session = null
  }
  const rollback = (): void => {
    database.forget()
    database.send('rollback')
    try {
      database.flush()
    } catch (thrown) {
      // A connection that is gone has taken its transaction along.
      if (!(thrown instanceof ServiceError)) throw thrown
    } finally {
      leave()
    }
  }
  return {
    isOpen: () => isOpen,
    begin(): void {
      database.send('begin')
      const begun = database.send(BEGIN_WRITING, [nodeId])
      rowNumbers.beginAfter(() => String(begun.answer().rows[0]?.[0]))
      isOpen = true
      granted.session = null
    },
    /** It is over, whatever became of it. */
    leave,
    rollback,
    guarded<Result>(call: () => Result): Result {
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
    },
  }
}

/** `leave`: the transaction is over. */
function createCommits({ database, granted, rowNumbers, nodeId }: Parts, leave: () => void) {
  // Of this process alone: another one may have counted as far.
  let commits = Date.now() * 1_000
  /** The last one that is known to have happened. */
  let lastCommit: number | null = null
  return {
    commit(): void {
      commits += 1
      const { turn, rows } = rowNumbers.taken() ?? { turn: null, rows: null }
      const known = [lastCommit ?? 0, lastCommit ?? Number.MAX_SAFE_INTEGER]
      database.send(NOTE_COMMIT, [commits, turn, rows, nodeId, ...known])
      database.send('commit')
      try {
        database.flush()
        granted.lastCommit = lastCommit = commits
      } catch (thrown) {
        throw thrown instanceof ConnectionLost ? new CommitUnknown(commits, thrown) : thrown
      } finally {
        leave()
      }
    },
    wasCommitted(number: number): boolean | null {
      granted.lastCommit = null
      try {
        const found = Number(database.send(FIND_COMMIT, [nodeId]).answer().rows[0]?.[0] ?? 0)
        const isOther = found !== number && found !== (lastCommit ?? found)
        if (isOther) throw new DatabaseChanged('', 'the last commit of the database is none of this process')
        granted.lastCommit = lastCommit = found
        return found === number
      } catch (thrown) {
        if (thrown instanceof ServiceError && !(thrown instanceof DatabaseChanged)) return null
        throw thrown
      } finally {
        leave()
      }
    },
  }
}

type Transaction = ReturnType<typeof createTransaction>

function guardedStatement<Parameters extends unknown[], Row>(
  statement: Statement<Parameters, Row>,
  transaction: Transaction,
): Statement<Parameters, Row> {
  const { guarded: guard, isOpen } = transaction
  return {
    run(...given) {
      const result = guard(() => statement.run(...given))
      return {
        lastInsertRowid: result.lastInsertRowid,
        get changes() {
          // Behind the commit all is answered, or lost.
          return isOpen() ? guard(() => result.changes) : result.changes
        },
      }
    },
    get: (...given) => guard(() => statement.get(...given)),
    all: (...given) => guard(() => statement.all(...given)),
    iterate: (...given) => guard(() => statement.iterate(...given)),
    ask(...given) {
      const rows = guard(() => ask(statement, ...given))
      return () => guard(rows)
    },
    pluck: () => guardedStatement(statement.pluck(), transaction),
  }
}

const NOTHING: RunResult = { changes: 0, lastInsertRowid: 0 }

function controlStatement(control: () => void): Statement {
  const statement: Statement = {
    run() {
      control()
      return NOTHING
    },
    get: () => undefined,
    all: () => [],
    iterate: () => [].values(),
    pluck: () => statement,
  }
  return statement
}
