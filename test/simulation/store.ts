/**
 * The store of a simulated process: the real verbs, group commit and thread channel, on a database in memory that
 * outlives the process as a file would.
 *
 * Calls and answers travel between two simulated threads, so that answers come late and overtake each other as they do
 * between real ones.
 */
import Sqlite, { type Database } from 'better-sqlite3'
import { createThreadChannel } from '../../src/base/threads/thread-channel.ts'
import { addAddressFunctions } from '../../src/store/sqlite/engine/address-functions.ts'
import { migrate } from '../../src/store/sqlite/engine/migrate.ts'
import { createSqliteEngine } from '../../src/store/sqlite/sqlite-engine.ts'
import { serveVerbs } from '../../src/store/thread/serve-verbs.ts'
import { createStoreCalls } from '../../src/store/thread/store-calls.ts'
import { CLOSE_CALL } from '../../src/store/thread/thread-messages.ts'
import type { Store } from '../../src/store/store.ts'
import { createPorts, type LinkOptions } from './threads.ts'
import type { Owner, VirtualTime } from './virtual-time.ts'

/** A database without rows. Made once: migrations take longer than most runs. */
export function emptyDatabase(): Buffer {
  const database = new Sqlite(':memory:')
  migrate(database, '.')
  const image = database.serialize()
  database.close()
  return image
}

export interface SimulatedDisk {
  database: Database
  /** Commits fail. */
  setFull(isFull: boolean): void
}

/** Statements are prepared when they run first: a process has some hundred, and a short run uses few. */
/** `onCommit`: a commit takes its time. */
export function createDisk(image: Buffer, onCommit: () => void): SimulatedDisk {
  const database = new Sqlite(image)
  addAddressFunctions(database, undefined)
  let isFull = false
  const prepare = database.prepare.bind(database)
  const statements = new Map<string, unknown>()
  const commit = prepare('commit')
  const commitToDisk = {
    run() {
      onCommit()
      if (isFull) throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' })
      return commit.run()
    },
  }
  database.prepare = ((sql: string) =>
    sql === 'commit' ? commitToDisk : lazyStatement(() => prepare(sql), { sql, statements })) as Database['prepare']
  return {
    database,
    setFull(now) {
      isFull = now
    },
  }
}

type Statement = ReturnType<Database['prepare']>

interface Kept {
  sql: string
  /** Of all processes on this database: those that were killed left them. */
  statements: Map<string, unknown>
}

const CALLS = ['run', 'get', 'all', 'iterate'] as const

function lazyStatement(make: () => Statement, { sql, statements }: Kept): Statement {
  let isPlucked = false
  const statement = (): Statement => {
    const name = `${isPlucked ? 'pluck ' : ''}${sql}`
    const known = statements.get(name)
    if (known !== undefined) return known as Statement
    const made = isPlucked ? make().pluck() : make()
    statements.set(name, made)
    return made
  }
  const calls = CALLS.map((name) => {
    const call = (...values: unknown[]): unknown => Reflect.apply(statement()[name], statement(), values)
    return [name, call] as const
  })
  const lazy = {
    ...Object.fromEntries(calls),
    pluck() {
      isPlucked = true
      return lazy
    },
  }
  return lazy as unknown as Statement
}

export interface StoreThreads extends Pick<LinkOptions, 'delay' | 'traffic'> {
  time: VirtualTime
  main: Owner
  thread: Owner
  /** Calls without an answer yet. */
  open: { count: number }
  onCall: (verb: string, argument: unknown) => void
}

const LOCATION = { folder: '.', commitLingerMilliseconds: 8, commitMostRows: 1_000, walMaxBytes: 2 ** 26 }

export function openSimulatedStore({ database }: SimulatedDisk, threads: StoreThreads): Store {
  const { time, main, thread, open } = threads
  const [near, far] = createPorts(time, [main, thread], threads)
  const verbs = serveVerbs(
    createSqliteEngine({ writer: database, reader: database, close: () => {} }, LOCATION),
    far,
    LOCATION,
  )
  const channel = createThreadChannel(near)
  const ask: typeof channel.call = (...asked) => {
    open.count++
    threads.onCall(asked[0], (asked[1] as unknown[])[0])
    return channel.call(...asked).finally(() => void open.count--)
  }
  const close = async (): Promise<void> => void (await channel.call(CLOSE_CALL, undefined))
  return { ...createStoreCalls(ask, verbs), problem: () => null, refusal: () => null, commitTime: () => null, close }
}
