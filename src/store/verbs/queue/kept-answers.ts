/** Idempotency keys: what a request was answered within the last 24 h (http/README.md "Idempotency"). */
import type { Database } from '../../engine/database.ts'
import { DAY } from '../../../base/clock.ts'
import type { IdempotencyEntry, KeptAnswer, SuppressedMessage } from '../../records/accept-records.ts'
import type { ForgetRequest } from '../../records/retention-records.ts'
import { ask } from '../tools/statements.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'

type IdempotencyLookup = ReturnType<Verb<'findIdempotent'>>

/** What is returned looks at the answer. */
export function createAskIdempotent(
  database: Database,
): (entry: IdempotencyEntry, now: number) => () => IdempotencyLookup {
  const find = database.prepare<
    [Buffer, string, number],
    { fingerprint: Buffer; status: number; body: string; suppressed: string | null }
  >(`
    select fingerprint, status, body, suppressed
    from idempotency_keys
    where api_key_id = ? and key = ? and created_at > ?`)
  return (entry, now) => {
    const rows = ask(find, ownerOf(entry), entry.key, now - DAY)
    return () => {
      const [row] = rows()
      if (row === undefined) return { kind: 'new' }
      if (!row.fingerprint.equals(entry.fingerprint)) return { kind: 'mismatch' }
      return {
        kind: 'replayed',
        answer: { status: row.status, body: row.body },
        suppressed: row.suppressed === null ? [] : (JSON.parse(row.suppressed) as SuppressedMessage[]),
      }
    }
  }
}

export function createFindIdempotent(database: Database): Verb<'findIdempotent'> {
  const askFor = createAskIdempotent(database)
  return (entry, now) => askFor(entry, now)()
}

/** Keeps the answer of a key that is new or outdated; another one keeps what it has. */
export function createAnswerWriter(database: Database) {
  const forget = database.prepare<[Buffer, string, number]>(`
    delete from idempotency_keys where api_key_id = +? and key = +? and created_at <= +?`)
  const add = database.prepare<[Buffer, string, Uint8Array, number, number, string, string | null]>(`
    insert into idempotency_keys (api_key_id, key, fingerprint, created_at, status, body, suppressed)
    values (?, ?, ?, ?, ?, ?, ?)
    on conflict do nothing`)
  return (entry: IdempotencyEntry, answer: KeptAnswer, suppressed: readonly SuppressedMessage[], now: number): void => {
    const owner = ownerOf(entry)
    forget.run(owner, entry.key, now - DAY)
    const list = suppressed.length === 0 ? null : JSON.stringify(suppressed)
    add.run(owner, entry.key, entry.fingerprint, now, answer.status, answer.body, list)
  }
}

export function createAnswerWrites(database: Database) {
  const keep = createAnswerWriter(database)
  // In the order of their rows, which is that of their ages: no further index is needed.
  const oldest = `
    select idempotency_seq from idempotency_keys where idempotency_seq > @after order by idempotency_seq limit +@limit`
  const look = database.prepare<[ForgetRequest], { count: number; last: number | null; young: number }>(`
    select count(*) as count, max(idempotency_seq) as last,
      coalesce(sum(iif(created_at >= @before and created_at <= @now, 1, 0)), 0) as young
    from idempotency_keys
    where idempotency_seq in (${oldest})`)
  const forget = database.prepare<[Omit<ForgetRequest, 'now'>]>(`
    delete from idempotency_keys where created_at < @before and idempotency_seq in (${oldest})`)
  return {
    keepAnswer: (entry, answer, now) => keep(entry, answer, [], now),
    forgetAnswers({ before, now, after, limit }) {
      const seen = look.get({ before, now, after, limit })
      const removed = forget.run({ before, after, limit }).changes
      const isLast = seen === undefined || seen.count < limit || seen.young > 0
      return { removed, next: isLast ? null : seen.last }
    },
  } satisfies SomeVerbs
}

/** The administrator's keys are those of no API key. */
const ownerOf = ({ apiKeyId }: IdempotencyEntry): Buffer =>
  apiKeyId === null ? Buffer.alloc(0) : storedIdentifier('key', apiKeyId)
