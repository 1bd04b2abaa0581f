/**
 * Claiming: due rows go under a lease to this process (store/README.md "Leases and claims"). The claim is counted here,
 * in memory, anew in each epoch; a group of verbs that is run again leaves gaps.
 *
 *   waiting -> sending      claimDue, claimUnrouted: due, unexpired, and its key was asked for
 *   waiting -> suppressed   the same: the address came onto the suppression list meanwhile
 *   waiting -> bounced      the same, of a message that may have arrived
 *
 * Expired rows are `expireDue`'s, those of a purged domain `cancelPurged`'s, and a row that leaves from an IP of another
 * node is that node's. A bounded number of them is passed over for a key: if more stand in front, it is named due in a
 * second; if fewer, in half a minute, or a walk would take the key for forgotten mail.
 *
 * `+?` here and elsewhere keeps SQLite from planning anew at each call (store/README.md "Decisions").
 */
import type { Database } from '../../engine/database.ts'
import { SECOND } from '../../../base/clock.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import { CAPTURE_POOL, isSimulated } from '../../../mail/simulator.ts'
import { UNROUTED } from '../../records/queue-records.ts'
import type { ClaimedMessage, ClaimRequest, ClaimResult, FoundDue } from '../../records/claim-records.ts'
import { createEventRecorder, type RecordedEvent } from '../events/record-events.ts'
import { createOwners } from '../events/owners.ts'
import { createEventStatistics } from '../ips/ip-statistics.ts'
import { createSuppressedEnding, createSuppressionCheck } from '../suppressions/suppressions.ts'
import { ask, askAhead, oneColumn } from '../tools/statements.ts'

/**
 * A message as its row has it. `isListed`: its address may be on some suppression list; `isElsewhere`: another node's;
 * `isPurged`: it is to be canceled.
 */
type DueRow = Omit<
  ClaimedMessage,
  'id' | 'claim' | 'isPossibleDuplicate' | 'avoidIps' | 'isCaptured' | keyof Origin
> & {
  id: Buffer
  possibleDuplicate: number
  avoidIps: string | null
  nextAt: number
  isListed: number
  isElsewhere?: number
  isPurged?: number
}

/** What the key of a row says of it. */
type Origin = Pick<ClaimedMessage, 'pool' | 'route' | 'domain' | 'stream'>

interface Lease {
  now: number
  epoch: number
  leaseUntil: number
}

/** Rows that are walked over, expired, purged or of another node: about 2 ms. */
const MOST_PASSED = 2_000
/** How long a key with more of them is left alone. */
const PASSED_PAUSE = SECOND
/** They have ended by then, or left; a walk over all keys comes as often. */
const GONE_WITHIN = 30 * SECOND
// Whole rows at once: reading each by its number afterwards costs ten times as much.
const WALKED_COLUMNS = `
  seq as key, id, content_id as contentId, recipient, recipient_domain as recipientDomain, attempts,
  created_at as acceptedAt, expires_at as expiresAt, path_failures as pathFailures,
  ambiguous_count as ambiguousCount, possible_duplicate as possibleDuplicate, last_ip as lastIp,
  keep_ip_until as keepIpUntil, avoid_ips as avoidIps, next_at as nextAt`
// It leaves from an IP (`keepIpUntil`) that another node owns: that one claims it. A suspended IP is not kept (0), but
// waited for where a time says so.
const isElsewhere = (ip: string, until: string): string => `
  (${until} is not null and (${until} > +?
      or ${until} = 0 and not exists (select 1 from egress_ips where egress_ips.ip = ${ip} and egress_ips.state = 'suspended'))
    and exists (select 1 from ip_owners where ip_owners.ip = ${ip} and ip_owners.epoch <> +?))`
const IS_ELSEWHERE = `${isElsewhere('walked.last_ip', 'walked.keep_ip_until')} as isElsewhere`
/** Of a sending domain: the last row that its removal cancels. */
const purgedThrough = (domain: string): string => `
  coalesce((select max(purged_through) from domains where purged_through is not null and name = ${domain}), 0)`
const IS_PURGED = `walked.seq <= ${purgedThrough('+?')} as isPurged`
// With capitals it may stand there in small letters: that is looked at for each such row.
const IS_LISTED = `
  (walked.recipient <> lower(walked.recipient)
    or exists (select 1 from suppressions where address = walked.recipient)) as isListed`
// By its names: with thousands of keys, most claims take a row or two of each, and one statement is cheaper than four.
const KEY = `
  state = 'waiting' and pool_id = (select pool_id from pools where name = ?)
  and route_id = (select route_id from routes where name = ?)
  and lane_id = (select lane_id from lanes where domain = ? and stream = ?) and is_retry = +?`

/** Of both claiming verbs: their claims are counted together. */
export function createClaiming(database: Database) {
  const lease = createLeasing(database)
  return { claimDue: createClaimDue(database, lease), claimUnrouted: createClaimUnrouted(database, lease) }
}

function createClaimDue(database: Database, lease: Leasing): (request: ClaimRequest) => ClaimResult {
  const findFirst = createFirstOfKeys(database)

  return ({ asks, ...terms }) => {
    const found: FoundDue[] = []
    const firsts = findFirst(asks, terms)
    for (const [index, { key }] of asks.entries()) {
      const due = firsts[index]?.due ?? []
      const { pool, route, domain, stream } = key
      if (due.length > 0) found.push(lease(due, () => ({ pool, route, domain, stream }), terms))
    }
    return {
      messages: found.flatMap(({ messages }) => messages),
      suppressed: found.reduce((sum, { suppressed }) => sum + suppressed, 0),
      earliestAt: firsts.map(({ nextAt }) => nextAt),
      firstAt: firsts.map(({ nextAt, passedAt }) => passedAt ?? nextAt),
    }
  }
}

interface FirstOfKey {
  due: DueRow[]
  /** When the next one is due; null: there is none. */
  nextAt: number | null
  /** When the first one was due, where some are passed by. */
  passedAt?: number | undefined
}

/** The first unexpired rows of each key that are due, and this node's. */
function createFirstOfKeys(
  database: Database,
): (asks: ClaimRequest['asks'], terms: Pick<Lease, 'now' | 'epoch'>) => FirstOfKey[] {
  const find = database.prepare<(string | number)[], DueRow>(`
    select ${WALKED_COLUMNS}, ${IS_LISTED}, ${IS_ELSEWHERE}, ${IS_PURGED}
    from messages as walked
    where ${KEY} and next_at between +? and +?
    order by next_at, seq
    limit +?`)
  const findOurs = database.prepare<(string | number)[], DueRow>(`
    select walked.*, ${IS_LISTED}
    from (select ${WALKED_COLUMNS} from messages where ${KEY} and next_at between +? and +? order by next_at, seq limit +?) as walked
    where expiresAt > +? and walked.key > ${purgedThrough('+?')}
      and not ${isElsewhere('walked.lastIp', 'walked.keepIpUntil')}
    limit +?`)
  const findBeyond = oneColumn(database)<(string | number)[], number>(`
    select next_at from messages where ${KEY} and next_at between +? and +? order by next_at limit 1 offset +?`)
  const findLater = oneColumn(database)<(string | number)[], number>(`
    select next_at from messages where ${KEY} and next_at > +? order by next_at limit 1`)

  return (asks, { now, epoch }) => {
    const keys = asks.map(({ key: { pool, route, domain, stream, isRetry } }) => {
      return [pool, route, domain, stream, Number(isRetry)]
    })
    const found = asks.map(({ key: { domain }, limit, from = 0 }, index) =>
      ask(find, now, epoch, domain, ...(keys[index] ?? []), from, now, limit + 1),
    )
    const foundLater = asks.map((_, index) => askAhead(findLater, ...(keys[index] ?? []), now))
    const firsts = asks.map(({ key: { domain }, limit, from = 0 }, index) => {
      const key = [...(keys[index] ?? []), from, now]
      // One more than is wanted tells when the key is due next.
      const wanted = limit + 1
      const rows = found[index]?.() ?? []
      const isPassed = ({ expiresAt, isElsewhere, isPurged }: DueRow): boolean =>
        expiresAt <= now || Boolean(isElsewhere) || Boolean(isPurged)
      if (!rows.some(isPassed)) return { rows, isBeyond: false, askAgainAt: Infinity }
      const passedAt = rows[0]?.nextAt
      const ours = findOurs.all(...key, wanted + MOST_PASSED, now, domain, now, epoch, wanted)
      const isBeyond = ours.length < wanted && findBeyond.get(...key, wanted + MOST_PASSED) !== undefined
      return { rows: ours, isBeyond, passedAt, askAgainAt: now + (isBeyond ? PASSED_PAUSE : GONE_WITHIN) }
    })
    return firsts.map(({ rows, isBeyond, askAgainAt, passedAt }, index) => {
      const { limit } = asks[index] ?? { limit: 0 }
      const next = isBeyond ? undefined : (rows[limit]?.nextAt ?? foundLater[index]?.()[0])
      const nextAt = Math.min(next ?? Infinity, askAgainAt)
      return { due: rows.slice(0, limit), nextAt: nextAt === Infinity ? null : nextAt, passedAt }
    })
  }
}

function createClaimUnrouted(
  database: Database,
  lease: Leasing,
): (request: Lease & { domain: string; limit: number }) => FoundDue {
  const findDue = database.prepare<[string, number, number, number, number], DueRow & Omit<Origin, 'route'>>(`
    select walked.*, pools.name as pool, lanes.domain, lanes.stream, ${IS_LISTED}
    from (
      select ${WALKED_COLUMNS}, pool_id, lane_id
      from messages
      where state = 'waiting' and route_id < 1 and recipient_domain = +? and next_at <= +?
      order by next_at, seq
      limit +?
    ) as walked
    cross join pools on pools.pool_id = walked.pool_id
    cross join lanes on lanes.lane_id = walked.lane_id
    where expiresAt > +? and walked.key > ${purgedThrough('lanes.domain')}
    limit +?`)
  return ({ domain: recipientDomain, limit, ...terms }) => {
    const rows = findDue.all(recipientDomain, terms.now, limit + MOST_PASSED, terms.now, limit)
    return lease(rows, ({ pool, domain, stream }) => ({ pool, route: UNROUTED, domain, stream }), terms)
  }
}

type Leasing = <Row extends DueRow>(rows: readonly Row[], originOf: (row: Row) => Origin, terms: Lease) => FoundDue

/** Puts rows under lease, but for those that end as suppressed. */
function createLeasing(database: Database): Leasing {
  // While it is leased, next_at says since when.
  const lease = database.prepare<[number, number, number, number, number]>(`
    update messages
    set state = 'sending', lease_epoch = ?, claim = ?, lease_until = ?, next_at = ?, dot_sent = 0, waiting_for = null
    where seq = ?`)
  const endSuppressed = createSuppressedEnder(database)
  let lastClaim = 0
  return (rows, originOf, { now, epoch, leaseUntil }) => {
    const suppressed = endSuppressed(
      rows.filter(({ isListed }) => isListed === 1),
      now,
    )
    const messages = rows
      .filter(({ key }) => !suppressed.has(key))
      .map((row) => {
        const claim = ++lastClaim
        lease.run(epoch, claim, leaseUntil, now, row.key)
        return claimedMessage(row, claim, originOf(row))
      })
    return { messages, suppressed: suppressed.size }
  }
}

function claimedMessage(row: DueRow, claim: number, { pool, route, domain, stream }: Origin): ClaimedMessage {
  const { key, contentId, recipient, recipientDomain, attempts, acceptedAt, expiresAt, pathFailures } = row
  const { ambiguousCount, possibleDuplicate, lastIp, keepIpUntil, avoidIps } = row
  return {
    key,
    claim,
    id: identifierFromBytes('msg', row.id),
    contentId,
    pool,
    route,
    domain,
    stream,
    recipient,
    recipientDomain,
    attempts,
    acceptedAt,
    expiresAt,
    pathFailures,
    ambiguousCount,
    isPossibleDuplicate: possibleDuplicate === 1,
    lastIp,
    keepIpUntil,
    avoidIps: avoidIps === null ? [] : (JSON.parse(avoidIps) as string[]),
    isCaptured: pool === CAPTURE_POOL,
  }
}

/** Ends those of the listed messages that their own list keeps from being sent; returns their rows. */
function createSuppressedEnder(database: Database): (listed: readonly DueRow[], now: number) => Set<number> {
  const findList = oneColumn(database)<[number], string | null>(`
    select unsubscribe_list from contents where content_id = ?`)
  const owners = createOwners(database)
  const beginChecks = createSuppressionCheck(database)
  const end = database.prepare<[string, number, number]>('update messages set state = ?, final_at = ? where seq = ?')
  const endingOf = createSuppressedEnding(database)
  const beginStatistics = createEventStatistics(database)
  const events = createEventRecorder(database)
  return (listed, now) => {
    const suppressed = new Set<number>()
    const check = beginChecks()
    const statistics = beginStatistics()
    const happened: RecordedEvent[] = []
    for (const { key, id, recipient, recipientDomain, contentId, possibleDuplicate } of listed) {
      const list = findList.get(contentId)
      // Whether a simulated recipient is suppressed was decided at acceptance.
      if (list === undefined || isSimulated(recipientDomain)) continue
      const reason = check(recipient, owners.ofRow(key))(list)
      if (reason === null) continue
      suppressed.add(key)
      const mayHaveArrived = possibleDuplicate === 1
      end.run(mayHaveArrived ? 'bounced' : 'suppressed', now, key)
      if (mayHaveArrived) statistics.bounced(key, 'undetermined', now)
      happened.push(...endingOf({ key, id: identifierFromBytes('msg', id), recipient, reason, mayHaveArrived }, now))
    }
    if (happened.length === 0) return suppressed
    statistics.flush(now)
    events.record(happened, now)
    return suppressed
  }
}
