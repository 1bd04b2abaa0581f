/**
 * The connection that writes, with its transactions as the group commit begins and ends them. The begin of one travels
 * with its first question, and its end with whatever was not asked for.
 *
 * A commit whose answer is lost throws CommitUnknown. Each commit leaves a number of its own (`last_commits`):
 * once the connection is there again, which it is only after the earlier one has ended at the server, that number tells
 * whether the commit happened.
 */
import { ServiceError } from '../../base/errors.ts'
import type { WritingDatabase } from '../engine/open-engine.ts'
import type { RunResult, Statement } from '../engine/database.ts'
import { ask } from '../verbs/tools/statements.ts'
import { ConnectionLost, DatabaseChanged, isOfStatement, ServerRefused, type BlockingWire } from './blocking-wire.ts'
import { FIND_COMMIT } from './connection.ts'
import type { PostgresDatabase } from './postgres-database.ts'

/** Whether this commit happened is asked for later. */
export class CommitUnknown extends ServiceError {
  readonly commit: number

  constructor(commit: number, cause: unknown) {
    super('unavailable', 'the database does not answer', { headers: { 'Retry-After': '2' }, cause })
    this.commit = commit
  }
}

const NOTE_COMMIT = `
  with earlier as (delete from last_commits where number between $2 and $3) insert into last_commits values ($1)`

interface PostgresWriter extends WritingDatabase {
  /** true: it happened, false: it did not, null: the server does not answer yet. */
  wasCommitted(commit: number): boolean | null
}

type Parts = { database: PostgresDatabase; granted: BlockingWire['granted'] }

export function createWritingDatabase(database: PostgresDatabase, { granted }: Pick<BlockingWire, 'granted'>) {
  const parts = { database, granted }
  const transaction = createTransaction(parts)
  const { guarded } = transaction
  const { commit, wasCommitted } = createCommits(parts, transaction.leave)
  const controls: Readonly<Record<string, () => void>> = {
    'begin immediate': transaction.begin,
    commit,
    rollback: transaction.rollback,
    'savepoint verb': () => void database.send('savepoint verb'),
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
function createTransaction({ database, granted }: Parts) {
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
        if (thrown instanceof ServerRefused && !isOfStatement(thrown)) rollback()
        else if (!isOfStatement(thrown)) leave()
        throw thrown
      }
    },
  }
}

/** `leave`: the transaction is over. */
function createCommits({ database, granted }: Parts, leave: () => void) {
  // Of this process alone: another one may have counted as far.
  let commits = Date.now() * 1_000
  /** The last one that is known to have happened. */
  let lastCommit: number | null = null
  return {
    commit(): void {
      commits += 1
      database.send(NOTE_COMMIT, [commits, lastCommit ?? 0, lastCommit ?? Number.MAX_SAFE_INTEGER])
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
        const found = Number(database.send(FIND_COMMIT).answer().rows[0]?.[0] ?? 0)
        if (found !== number && found !== (lastCommit ?? found)) throw new DatabaseChanged()
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
