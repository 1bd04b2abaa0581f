/** MTA-STS policies of recipient domains, as they were fetched (RFC 8461 §3.3), and hosts whose STARTTLS failed. */
import type { Database } from 'better-sqlite3'
import type { PlainMemory, StsPolicyRecord } from '../../records/tls-records.ts'

interface PolicyRow extends Omit<StsPolicyRecord, 'mx'> {
  /** JSON. */
  mx: string
}

const COLUMNS = 'domain, policy_id as id, mode, mx, fetched_at as fetchedAt, expires_at as expiresAt'
/** Policies that one new policy makes room of at most. */
const FORGOTTEN_AT_ONCE = 10

/** Also when it is over: the caller has the clock. */
export function createFindStsPolicy(database: Database): (domain: string) => StsPolicyRecord | null {
  const find = database.prepare<[string], PolicyRow>(`select ${COLUMNS} from sts_policies where domain = ?`)
  return (domain) => {
    const row = find.get(domain)
    return row === undefined ? null : policyOf(row)
  }
}

const policyOf = (row: PolicyRow): StsPolicyRecord => ({ ...row, mx: JSON.parse(row.mx) as string[] })

/** Takes the place of an earlier one; some of those that are over by then go. */
export function createKeepStsPolicy(database: Database): (policy: StsPolicyRecord) => void {
  const keep = database.prepare(`
    insert into sts_policies (domain, policy_id, mode, mx, fetched_at, expires_at)
    values (@domain, @id, @mode, @mx, @fetchedAt, @expiresAt)
    on conflict do update
    set policy_id = excluded.policy_id, mode = excluded.mode, mx = excluded.mx, fetched_at = excluded.fetched_at,
      expires_at = excluded.expires_at`)
  const forget = database.prepare<[number, number]>(`
    delete from sts_policies
    where domain in (select domain from sts_policies where expires_at < ? order by expires_at limit +?)`)
  return (policy) => {
    forget.run(policy.fetchedAt, FORGOTTEN_AT_ONCE)
    keep.run({ ...policy, mx: JSON.stringify(policy.mx) })
  }
}

export function createStsPoliciesFetchedBefore(
  database: Database,
): (request: { before: number; limit: number }) => StsPolicyRecord[] {
  const find = database.prepare<[number, number], PolicyRow>(
    `select ${COLUMNS} from sts_policies where fetched_at < ? order by fetched_at limit +?`,
  )
  return ({ before, limit }) => find.all(before, limit).map(policyOf)
}

/** Those that hold; the others are forgotten with it. */
export function createPlainMemories(database: Database): (now: number) => PlainMemory[] {
  const forget = database.prepare<[number]>('delete from plain_memories where until_at <= ?')
  const find = database.prepare<[number], PlainMemory>(
    'select ip, host, until_at as until, reason from plain_memories where until_at > ? order by until_at',
  )
  return (now) => {
    forget.run(now)
    return find.all(now)
  }
}

export function createKeepPlainMemories(database: Database): (memories: PlainMemory[]) => void {
  const keep = database.prepare(`
    insert into plain_memories (ip, host, until_at, reason)
    values (@ip, @host, @until, @reason)
    on conflict do update set until_at = excluded.until_at, reason = excluded.reason`)
  return (memories) => {
    for (const memory of memories) keep.run(memory)
  }
}

export function createForgetPlainMemory(database: Database): (memory: { ip: string; host: string }) => void {
  const forget = database.prepare<[string, string]>('delete from plain_memories where ip = ? and host = ?')
  return ({ ip, host }) => void forget.run(ip, host)
}
