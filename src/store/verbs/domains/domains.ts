/** Sending domains, their keys, and what the last check of their DNS records found. */
import type { Database } from '../../engine/database.ts'
import { ServiceError } from '../../../base/errors.ts'
import type { DomainCheckResult, PublicDkimKey } from '../../records/sender-records.ts'
import { pageOf, positionAfter } from '../tools/pages.ts'
import { oneColumn } from '../tools/statements.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'
import { createEventRecorder } from '../events/record-events.ts'
import {
  createDkimKeys,
  createDomainInsert,
  createFindTrackingHost,
  createLivingDomain,
  createRowReader,
  DOMAIN_COLUMNS,
  SENDING_ROW,
  type DomainRow,
  type FoundDomain,
} from './domain-rows.ts'
import { createCanceling, type CanceledRow } from '../queue/cancel.ts'

/** Removed keys that are told at most. */
const MOST_EARLIER_KEYS = 20

export function createDomainReads(database: Database) {
  const findLiving = createLivingDomain(database)
  const findReturnPath = oneColumn(database)<[string, string], string>(`
    select return_path from domains where domain_id = ${SENDING_ROW}`)
  const findByReturnPath = database.prepare<[string], 1>('select 1 from domains where return_path = ? limit 1')
  const findEarlierKeys = database.prepare<[string, number], PublicDkimKey>(`
    select dkim_keys.algorithm, dkim_keys.public_key as publicKey
    from domains
    cross join dkim_keys on dkim_keys.domain_id = domains.domain_id
    where domains.name = ? and domains.removed_at is not null
    order by domains.domain_id desc
    limit +?`)
  const findPage = database.prepare<[number, string | null, string | null, number], DomainRow>(`
    select ${DOMAIN_COLUMNS}
    from domains
    where removed_at is null and domain_id < ? and (? is null or state in (select value from json_each(?)))
    order by domain_id desc
    limit +?`)
  const toFound = createRowReader(database)
  const findDue = oneColumn(database)<[number, number], string>(`
    select name
    from domains
    where removed_at is null and next_check_at <= ?
    order by next_check_at
    limit +?`)
  return {
    findDomain: (name) => findLiving(name)?.domain ?? null,
    findReturnPath: (name) => findReturnPath.get(name, name) ?? null,
    isReturnPath: (host) => findByReturnPath.get(host) !== undefined,
    findTrackingHost: createFindTrackingHost(database),
    earlierDkimKeys: (name) => findEarlierKeys.all(name, MOST_EARLIER_KEYS),
    listDomains({ states, limit, after }) {
      const wanted = states === null ? null : JSON.stringify(states)
      const rows = findPage.all(positionAfter(after), wanted, wanted, limit + 1)
      const { page, next } = pageOf(rows, limit, ({ domainId }) => String(domainId))
      return { domains: page.map((row) => toFound(row).domain), next }
    },
    domainsDueForCheck: (now, limit) => findDue.all(now, limit),
  } satisfies SomeVerbs
}

export function createDomainWrites(database: Database) {
  const findLiving = createLivingDomain(database)
  const find = (name: string) => findLiving(name)?.domain ?? null
  const count = database.prepare<[], number>('select count(*) from domains where removed_at is null').pluck()
  const insert = createDomainInsert(database)
  const dkimKeys = createDkimKeys(database)
  const update = database.prepare<[number, number, number, string | null, number]>(`
    update domains
    set tracking_opens = ?, tracking_clicks = ?, allow_subdomains = ?, ip_pool = ?
    where domain_id = ?`)
  const settle = createCheckWriter(database)
  return {
    addDomain(domain, most) {
      const known = find(domain.name)
      if (known !== null) return { domain: known, isNew: false }
      if (most !== null && (count.get() ?? 0) >= most) {
        throw new ServiceError('conflict', `there are ${most} domains already, which is the limit`)
      }
      dkimKeys.add(insert(domain), domain.keys)
      return { domain: find(domain.name) ?? domain, isNew: true }
    },
    updateDomain(name, change) {
      const found = findLiving(name)
      if (found === null) return null
      const { tracking, allowSubdomains, ipPool } = { ...found.domain, ...change }
      update.run(Number(tracking.opens), Number(tracking.clicks), Number(allowSubdomains), ipPool, found.domainId)
      return find(name)
    },
    addDkimKeys(name, keys, replaced = []) {
      const found = findLiving(name)
      if (found === null) return null
      dkimKeys.dropNext(found.domainId, replaced)
      dkimKeys.add(found.domainId, keys)
      return find(name)
    },
    recordDomainCheck(result) {
      const found = findLiving(result.name)
      if (found === null) return null
      if (isOfEarlierDomain(result, found)) return found.domain
      settle(found.domainId, result)
      dkimKeys.settle(found.domainId, result.keys, result.now)
      return find(result.name)
    },
  } satisfies SomeVerbs
}

function createCheckWriter(database: Database): (domainId: number, result: DomainCheckResult) => void {
  const events = createEventRecorder(database)
  const update = database.prepare<[object]>(`
    update domains
    set state = @state, verified_at = @verifiedAt, last_checked_at = @now, next_check_at = @nextCheckAt,
      failing_since = @failingSince, failed_checks = @failedChecks, degraded_at = @degradedAt, checks = @checks
    where domain_id = @domainId`)
  return (domainId, result) => {
    update.run({ ...result, checks: JSON.stringify(result.checks), domainId })
    const happened = result.events.map((event) => ({ ...event, messageKey: null }))
    events.record(happened, result.now)
  }
}

/** The domain was removed and added anew while it was checked: the two have no key in common. */
function isOfEarlierDomain(result: DomainCheckResult, { domain }: FoundDomain): boolean {
  const selectors = new Set(result.keys.map(({ selector }) => selector))
  return domain.keys.length > 0 && !domain.keys.some(({ selector }) => selectors.has(selector))
}

/**
 * Removing a domain: its row and keys stay for the mail that waits, or that mail is canceled.
 *
 *   waiting -> canceled   removed with `purge`; also what was under way then and came back to the queue
 *
 * The row remembers which messages it is about, so that a crash between two parts loses none of them, and mail of a
 * later domain of the same name is not meant. No claim takes one of them from then on.
 */
export function createDomainRemoval(database: Database) {
  const find = createLivingDomain(database)
  const remove = database.prepare<[number, number, number]>(`
    update domains
    set removed_at = ?, next_check_at = null,
      purged_through = case when ? then (select coalesce(max(seq), 0) from messages) end
    where domain_id = ?`)
  const count = createQueuedCount(database)
  const findLanes = database.prepare<[], { laneId: number; purgedThrough: number }>(`
    select lanes.lane_id as laneId, domains.purged_through as purgedThrough
    from domains
    cross join lanes on lanes.domain = domains.name
    where domains.purged_through is not null`)
  const findWaiting = database.prepare<[number, number, number], CanceledRow>(`
    select seq, id, recipient
    from messages
    where state = 'waiting' and lane_id = ? and seq <= ?
    limit +?`)
  const cancel = createCanceling(database)

  return {
    removeDomain({ name, now, purge }) {
      const found = find(name)
      if (found === null) return null
      remove.run(now, Number(purge), found.domainId)
      return { queuedMessages: count(name) }
    },
    cancelPurged(now, limit) {
      const rows: CanceledRow[] = []
      for (const { laneId, purgedThrough } of findLanes.all()) {
        if (rows.length < limit) rows.push(...findWaiting.all(laneId, purgedThrough, limit - rows.length))
      }
      cancel(rows, now)
      return rows.length
    },
  } satisfies SomeVerbs
}

/** Messages of a sending domain that have not ended. */
export function createQueuedCount(database: Database): Verb<'queuedMessages'> {
  const countWaiting = oneColumn(database)<[string], number>(`
    select count(*)
    from lanes
    cross join messages on messages.lane_id = lanes.lane_id
    where lanes.domain = ? and messages.state = 'waiting' and messages.seq > 0`)
  // The bound on lease_until is what lets the partial index answer.
  const countSending = oneColumn(database)<[string], number>(`
    select count(*)
    from messages
    where state = 'sending' and lease_until > 0 and lane_id in (select lane_id from lanes where domain = ?)`)
  return (domain) => (countWaiting.get(domain) ?? 0) + (countSending.get(domain) ?? 0)
}
