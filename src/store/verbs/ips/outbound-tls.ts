/**
 * MTA-STS policies of recipient domains, as they were fetched (RFC 8461 §3.3); hosts whose STARTTLS failed; what
 * connections said about TLS, for the reports of RFC 8460, and which of those went out.
 */
import type { Database } from '../../engine/database.ts'
import type { PlainMemory, StsPolicyRecord, TlsResult } from '../../records/tls-records.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'
import { dayAfter } from '../../../base/utc-day.ts'
import { oneColumn } from '../tools/statements.ts'

const DAYS_KEPT = 14
/** Rows that one call forgets at most. */
const RESULTS_FORGOTTEN_AT_ONCE = 200

interface PolicyRow extends Omit<StsPolicyRecord, 'mx'> {
  /** JSON. */
  mx: string
}

const COLUMNS = 'domain, policy_id as id, mode, mx, fetched_at as fetchedAt, expires_at as expiresAt'
/** Policies that one new policy makes room of at most. */
const FORGOTTEN_AT_ONCE = 10

export function createTlsReads(database: Database) {
  const find = database.prepare<[string], PolicyRow>(`select ${COLUMNS} from sts_policies where domain = ?`)
  const findOld = database.prepare<[number, number], PolicyRow>(`
    select ${COLUMNS} from sts_policies where fetched_at < ? order by fetched_at limit +?`)
  const findResults = database.prepare<[string], ResultRow>(`
    select day, domain, policy_type as policyType, policy, host, ip, result, count
    from tls_results
    where day = ?
    order by domain`)
  const findDue = oneColumn(database)<[string], string>(`
    select distinct domain
    from tls_results
    where day = ? and not exists (
      select 1 from tls_reports where tls_reports.day = tls_results.day and tls_reports.domain = tls_results.domain)
    order by domain`)

  return {
    /** Also when it is over: the caller has the clock. */
    findStsPolicy(domain) {
      const row = find.get(domain)
      return row === undefined ? null : policyOf(row)
    },
    stsPoliciesFetchedBefore: (before, limit) => findOld.all(before, limit).map(policyOf),
    tlsResults: (day) => findResults.all(day).map((row) => ({ ...row, policy: JSON.parse(row.policy) as string[] })),
    tlsReportsDue: (day) => findDue.all(day),
  } satisfies SomeVerbs
}

const policyOf = (row: PolicyRow): StsPolicyRecord => ({ ...row, mx: JSON.parse(row.mx) as string[] })

export function createTlsWrites(database: Database) {
  const keepPolicy = database.prepare(`
    insert into sts_policies (domain, policy_id, mode, mx, fetched_at, expires_at)
    values (@domain, @id, @mode, @mx, @fetchedAt, @expiresAt)
    on conflict (domain) do update
    set policy_id = excluded.policy_id, mode = excluded.mode, mx = excluded.mx, fetched_at = excluded.fetched_at,
      expires_at = excluded.expires_at`)
  const forgetPolicies = database.prepare<[number, number]>(`
    delete from sts_policies
    where domain in (select domain from sts_policies where expires_at < ? order by expires_at limit +?)`)
  const forgetOver = database.prepare<[number]>('delete from plain_memories where until_at <= ?')
  const findMemories = database.prepare<[number], PlainMemory>(`
    select ip, host, until_at as until, reason from plain_memories where until_at > ? order by until_at`)
  const keepMemory = database.prepare(`
    insert into plain_memories (ip, host, until_at, reason)
    values (@ip, @host, @until, @reason)
    on conflict (ip, host) do update set until_at = excluded.until_at, reason = excluded.reason`)
  const forgetMemory = database.prepare<[string, string]>('delete from plain_memories where ip = ? and host = ?')
  const noteReport = database.prepare<[string, string]>(`
    insert into tls_reports (day, domain) values (?, ?) on conflict do nothing`)

  return {
    /** Takes the place of an earlier one; some of those that are over by then go. */
    keepStsPolicy(policy) {
      forgetPolicies.run(policy.fetchedAt, FORGOTTEN_AT_ONCE)
      keepPolicy.run({ ...policy, mx: JSON.stringify(policy.mx) })
    },
    /** Those that hold; the others are forgotten with it. */
    plainMemories(now) {
      forgetOver.run(now)
      return findMemories.all(now)
    },
    keepPlainMemories(memories) {
      for (const memory of memories) keepMemory.run(memory)
    },
    forgetPlainMemory: (ip, host) => void forgetMemory.run(ip, host),
    noteTlsReport: (day, domain) => void noteReport.run(day, domain),
  } satisfies SomeVerbs
}

interface ResultRow extends Omit<TlsResult, 'policy'> {
  /** JSON. */
  policy: string
}

/** Sums by day; days older than two weeks go as new ones come. */
export function createAddTlsResults(database: Database): Verb<'addTlsResults'> {
  const add = database.prepare(`
    insert into tls_results (day, domain, policy_type, host, ip, result, policy, count)
    values (@day, @domain, @policyType, @host, @ip, @result, @policy, @count)
    on conflict (day, domain, policy_type, host, ip, result, policy)
    do update set count = tls_results.count + excluded.count`)
  const forgetResults = database.prepare<[string, number]>(`
    delete from tls_results
    where (day, domain, policy_type, host, ip, result, policy) in (
      select day, domain, policy_type, host, ip, result, policy from tls_results where day < ? limit +?)`)
  const forgetReports = database.prepare<[string, number]>(`
    delete from tls_reports
    where (day, domain) in (select day, domain from tls_reports where day < ? limit +?)`)
  return (results) => {
    for (const result of results) add.run({ ...result, policy: JSON.stringify(result.policy) })
    const newest = results
      .map(({ day }) => day)
      .sort()
      .at(-1)
    if (newest === undefined) return
    const before = dayAfter(newest, -DAYS_KEPT)
    forgetResults.run(before, RESULTS_FORGOTTEN_AT_ONCE)
    forgetReports.run(before, RESULTS_FORGOTTEN_AT_ONCE)
  }
}
