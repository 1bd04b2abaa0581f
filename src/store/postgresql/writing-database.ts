/**
 * The connection that writes, with its transactions as the group commit begins and ends them. The begin of one travels
 * with its first question, and its end with whatever was not asked for.
 *
 * A commit whose answer is lost throws CommitUnknown. Each commit leaves a number of its own (`meta`, last_commit):
 * once the connection is there again, which it is only after the earlier one has ended at the server, that number tells
 * whether the commit happened.
 */
import { ServiceError } from '../../base/errors.ts'
import type { WritingDatabase } from '../engine/open-engine.ts'
import type { RunResult, Statement } from '../engine/database.ts'
import { ask } from '../verbs/tools/statements.ts'
import { ConnectionLost, StatementFailed } from './blocking-wire.ts'
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
  insert into meta (name, value) values ('last_commit', $1)
  on conflict (name) do update set value = excluded.value`
const FIND_COMMIT = `select value from meta where name = 'last_commit'`

interface PostgresWriter extends WritingDatabase {
  /** true: it happened, false: it did not, null: the server does not answer yet. */
  wasCommitted(commit: number): boolean | null
}

export function createWritingDatabase(database: PostgresDatabase): PostgresWriter {
  let inTransaction = false
  // Of this process alone: another one may have counted as far.
  let commits = Date.now() * 1_000

  /** Without a connection there is no transaction any more. */
  const guard = <Result>(call: () => Result): Result => {
    try {
      return call()
    } catch (thrown) {
      if (!(thrown instanceof StatementFailed)) {
        database.forget()
        inTransaction = false
      }
      throw thrown
    }
  }
  const commit = (): void => {
    commits += 1
    database.send(NOTE_COMMIT, [commits])
    database.send('commit')
    try {
      database.flush()
    } catch (thrown) {
      throw thrown instanceof ConnectionLost ? new CommitUnknown(commits, thrown) : thrown
    } finally {
      inTransaction = false
    }
  }
  const controls: Readonly<Record<string, () => void>> = {
    'begin immediate'() {
      database.send('begin')
      inTransaction = true
    },
    commit,
    rollback() {
      database.forget()
      inTransaction = false
      database.send('rollback')
      database.flush()
    },
    'savepoint verb': () => void database.send('savepoint verb'),
    // What the verb did is answered before the next one begins: a failure belongs to it.
    'release verb'() {
      database.send('release verb')
      guard(database.flush)
    },
    'rollback to verb'() {
      database.forget()
      database.send('rollback to verb')
      guard(database.flush)
    },
  }
  return {
    get inTransaction() {
      return inTransaction
    },
    prepare: <Parameters extends unknown[], Row>(sql: string) => {
      const control = controls[sql]
      if (control !== undefined) return controlStatement(control) as Statement<Parameters, Row>
      return guardedStatement(database.prepare<Parameters, Row>(sql), guard)
    },
    wasCommitted(number) {
      try {
        return Number(database.send(FIND_COMMIT).answer().rows[0]?.[0]) === number
      } catch (thrown) {
        database.forget()
        if (thrown instanceof ServiceError) return null
        throw thrown
      }
    },
  }
}

type Guard = <Result>(call: () => Result) => Result

function guardedStatement<Parameters extends unknown[], Row>(
  statement: Statement<Parameters, Row>,
  guard: Guard,
): Statement<Parameters, Row> {
  return {
    run(...given) {
      const result = guard(() => statement.run(...given))
      return {
        lastInsertRowid: result.lastInsertRowid,
        get changes() {
          return guard(() => result.changes)
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
    pluck: () => guardedStatement(statement.pluck(), guard),
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
