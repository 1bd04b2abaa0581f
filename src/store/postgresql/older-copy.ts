/**
 * A database that lacks what was committed before: a dump, an earlier moment of its archive, a standby that no commit
 * waited for. Its undelivered mail may have been sent since, and must not go out again by itself.
 *
 *   lacks at most a minute   its mail goes out, marked as a possible duplicate
 *   lacks more               waiting, sending -> waiting, held   until `sternpost queue release` or `drop`
 *
 * A message whose own time is still to come cannot have been sent. The lifetime of what is held stands still between the
 * moment of the copy and now. Today's allowance of warming IPs counts as used. Sessions of the console and links to it
 * may have been ended since, so they are.
 *
 * Of several nodes that lack commits the first one does this for all. Mail that another one has accepted on this copy, or
 * works on, is left as it is.
 */
import { MINUTE } from '../../base/clock.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { utcDay } from '../../base/utc-day.ts'
import type { NotedCommit } from '../made-mark.ts'
import { HELD_UNTIL } from '../records/queue-records.ts'
import { TOGETHER } from '../verbs/ips/allowance.ts'
import { COUNT_HELD } from '../verbs/queue/waiting-rows.ts'
import type { BlockingWire } from './blocking-wire.ts'
import { askOnce } from './postgres-database.ts'

export interface HeldCopy {
  held: number
  /** Of these, by an operator when the copy was made. */
  heldBefore: number
}

/** All times are Unix milliseconds. */
interface Copy {
  copiedAt: number
  /** What was accepted later, and nodes that lived later, belong to this database and not to another one before it. */
  until: number
  now: number
}

const NOT_WORKED_WITH = 'no Sternpost has worked with the database that storage.url names: pg_restore comes first'
const MOST_GOES_OUT_MILLISECONDS = MINUTE

/** That of `wait_to_write`: whoever writes waits (migrations/0002-nodes.sql). */
const LOCK = 7_394_166_202
/** Of this node, when the copy was made; no row: it was not there. */
const FIND_NODE = `
  select max(number) as number, max(beat_at) as "beatAt"
  from last_commits join nodes using (node_id)
  where node_id = $1`

/** $1: until, $2: now. No node takes it for an older copy once more. */
const WRITES_OFF = `
  written_off as (
    insert into last_commits (node_id, number, turn, last_rows)
    select node_id, $2::bigint * 1000, 0, '{}' from nodes where beat_at <= $1::bigint
    on conflict do nothing
  )`
const MAY_BE_SENT = `
  possible_duplicate = case
    when (select send_at from contents where contents.content_id = messages.content_id) > $2::bigint
    then possible_duplicate else 1 end`
const UNDELIVERED = `
  state in ('waiting', 'sending') and created_at <= $1::bigint
  and coalesce(lease_epoch not in (select epoch from nodes where beat_at > $1::bigint), true)`
const FLAG = `
  with ${WRITES_OFF},
  flagged as (update messages set ${MAY_BE_SENT} where ${UNDELIVERED} returning 1)
  select count(*) as flagged from flagged`
/** $3: the moment of the copy, $4: the day of now. */
const HOLD = `
  with ${WRITES_OFF},
  held as (
    update messages
    set state = 'waiting', next_at = ${HELD_UNTIL}, waiting_for = 'held', dot_sent = 0, lease_epoch = null,
      lease_until = null, claim = null, ${MAY_BE_SENT},
      expires_at = expires_at + greatest(0, $2::bigint - $3::bigint)
    where ${UNDELIVERED}
    returning 1
  ),
  used_up as (
    insert into warmup_days (ip, day, isp, cap, granted, arrival_at, interval_milliseconds)
    select ip, $4, '${TOGETHER}', 0, 0, ${HELD_UNTIL}, 0 from egress_ips
    where state in ('warming', 'paused') or former_state in ('warming', 'paused')
    on conflict (ip, day, isp) do update set arrival_at = excluded.arrival_at
  ),
  ended_sessions as (delete from sessions),
  ended_links as (delete from login_links)
  select (select count(*) from held) as held, (${COUNT_HELD}) as "heldBefore"`

/** What the log says as an error; null: it lacks nothing that this server knows of. */
export function settleOlderCopy(wire: BlockingWire, noted: NotedCommit | null): string | null {
  if (noted === null || copyTime(wire, noted) === null) return null
  return whileNobodyWrites(wire, () => {
    // Another node may have done it meanwhile.
    const copiedAt = copyTime(wire, noted)
    if (copiedAt === null) return null
    const [from, to] = [copiedAt, noted.at].map((at) => new Date(at).toISOString())
    const text = `the database is an older copy, of ${from}: this server had worked with it until ${to}`
    if (noted.at - copiedAt <= MOST_GOES_OUT_MILLISECONDS) {
      const { flagged } = askOnce(wire, FLAG, [noted.at, Date.now()])
      return `${text}; ${String(flagged)} messages may have been sent since, and go out marked as possible duplicates`
    }
    const { held } = holdAll(wire, { copiedAt, until: noted.at, now: Date.now() })
    const fix = 'sternpost queue list --held; then: sternpost queue release --held, or: sternpost queue drop --held'
    return `${text}; ${held} messages are held, since they may have been sent. Fix: ${fix}`
  })
}

/** null: the database has all that this server had committed, or is not the one that it was committed to. */
function copyTime(wire: BlockingWire, noted: NotedCommit): number | null {
  const { number, beatAt } = askOnce(wire, FIND_NODE, [noted.nodeId])
  return typeof number === 'number' && number < noted.number ? Number(beatAt) : null
}

/** Throws ProcessExit 78 for a database that no Sternpost has worked with. */
export function holdCopy(wire: BlockingWire, copiedAt: number, now: number): HeldCopy {
  const { isEmpty } = askOnce(wire, 'select not exists (select 1 from nodes) as "isEmpty"')
  if (isEmpty === 1) throw new ProcessExit(EXIT.configuration, NOT_WORKED_WITH)
  return whileNobodyWrites(wire, () => holdAll(wire, { copiedAt, until: now, now }))
}

function holdAll(wire: BlockingWire, { copiedAt, until, now }: Copy): HeldCopy {
  const { held, heldBefore } = askOnce(wire, HOLD, [until, now, copiedAt, utcDay(now)])
  return { held: Number(held), heldBefore: Number(heldBefore) }
}

/** A session that ends takes its lock along. */
function whileNobodyWrites<Result>(wire: BlockingWire, work: () => Result): Result {
  askOnce(wire, `select pg_advisory_lock(${LOCK})`)
  const result = work()
  askOnce(wire, `select pg_advisory_unlock(${LOCK})`)
  return result
}
