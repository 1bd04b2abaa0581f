/**
 * The states of an egress IP, and the only code that moves one from state to state. Pure.
 *
 *           start                complete, last stage, target
 *   cold ──────────▶ warming ──────────────────────────────────▶ warmed
 *                    │  ▲  ▲────────────────────────────────────────┘
 *              pause ▼  │ resume      rewarm (30 idle days), restart
 *                    paused
 *   any ── suspend ──▶ suspended ── unsuspend ──▶ the state before
 *
 * A pause or suspension with an end is ended by the clock. `disabled` is no stored state: it follows from pools.yaml
 * and from this machine. Every move is one audit row; moves that customers are told of are events as well.
 */
import { newIdentifier } from '../../base/identifier.ts'
import type { EventKind, ServiceEvent } from '../../mail/event.ts'
import type { AuditRecord, IpRecord, StoredIpState } from '../../store/records/warmup-records.ts'

type Target = StoredIpState | 'same' | 'former'

const ANY = ['cold', 'warming', 'paused', 'warmed', 'suspended'] as const

/** | action | from | to | event | */
const MOVES = {
  start: { from: ['cold'], to: 'warming', event: null }, // POST …/warmup
  restart: { from: ['warming', 'paused', 'warmed', 'suspended'], to: 'warming', event: null }, // with `restart: true`
  advance: { from: ['warming', 'paused', 'suspended'], to: 'same', event: 'ip.warmup.advanced' }, // used and healthy
  hold: { from: ['warming', 'paused', 'suspended'], to: 'same', event: null }, // told when the reason is new
  demote: { from: ['warming', 'paused', 'suspended'], to: 'same', event: 'ip.warmup.held' }, // an unhealthy day
  stage: { from: ['warming', 'paused', 'suspended'], to: 'same', event: null }, // the curve was changed
  pause: { from: ['warming'], to: 'paused', event: 'ip.warmup.held' }, // a gate, a block, or somebody
  resume: { from: ['paused'], to: 'warming', event: null }, // the pause ended, or somebody
  complete: { from: ['warming', 'paused'], to: 'warmed', event: 'ip.warmup.completed' }, // the ramp is over
  rewarm: { from: ['warming', 'warmed'], to: 'warming', event: 'ip.warmup.held' }, // no mail for 30 days
  // Told when receivers brought it about.
  suspend: { from: ['cold', 'warming', 'paused', 'warmed'], to: 'suspended', event: null },
  unsuspend: { from: ['suspended'], to: 'former', event: null }, // the suspension ended, or somebody
  suspend_provider: { from: ANY, to: 'same', event: null }, // its mail to one provider, by an operator
  resume_provider: { from: ANY, to: 'same', event: null },
} as const satisfies Record<string, { from: readonly StoredIpState[]; to: Target; event: EventKind | null }>

export type IpAction = keyof typeof MOVES

export interface IpMove {
  action: IpAction
  now: number
  /** `key_…`, `cli`, `gate`, `clock` or `config`. */
  actor: string
  reason: string | null
  /** Further fields that change with it. */
  changes?: Partial<IpRecord>
  /** The warmup day it is about. */
  day?: string
  figures?: AuditRecord['figures']
  /** A hold that is told although its reason is not new; a suspension that blocks brought about. */
  isTold?: boolean
}

/** What one or more moves lead to, for one transaction. */
export interface MovedIp {
  record: IpRecord
  audit: AuditRecord[]
  events: ServiceEvent[]
}

export function canMove({ state }: IpRecord, action: IpAction): boolean {
  const from: readonly StoredIpState[] = MOVES[action].from
  return from.includes(state)
}

/** It warms up, or will when its pause or suspension is over: it has days to close, and caps. */
export function isInWarmup({ state, formerState, stage }: IpRecord): boolean {
  if (stage === null) return false
  const behind = state === 'suspended' ? formerState : state
  return behind === 'warming' || behind === 'paused'
}

/** Throws when the table has no such move: callers ask `canMove` first. */
export function moveIp(record: IpRecord, pool: string, move: IpMove): MovedIp {
  const { action, now, actor, reason } = move
  if (!canMove(record, action)) throw new Error(`${record.ip} cannot ${action} while ${record.state}`)
  const state = targetState(record, MOVES[action].to)
  const isMove = state !== record.state
  const moved: IpRecord = {
    ...record,
    state,
    ...(isMove ? { actor, since: now, until: null, reason: null, formerState: null } : {}),
    ...(state === 'paused' || state === 'suspended' ? { reason: isMove ? reason : record.reason } : {}),
    ...move.changes,
  }
  return { record: moved, audit: [auditRow(record, moved, move)], events: eventsOf(record, moved, pool, move) }
}

export function auditRow(before: IpRecord, after: IpRecord, { action, now, actor, ...move }: IpMove): AuditRecord {
  return {
    at: now,
    ip: before.ip,
    actor,
    action,
    fromState: before.state,
    toState: after.state,
    fromStage: before.stage,
    toStage: after.stage,
    day: move.day ?? null,
    figures: move.figures ?? {},
    reason: move.reason,
  }
}

/** The first, and then what `next` makes of its record. */
export function andThen(first: MovedIp, next: (record: IpRecord) => MovedIp): MovedIp {
  const second = next(first.record)
  return {
    record: second.record,
    audit: [...first.audit, ...second.audit],
    events: [...first.events, ...second.events],
  }
}

export function unmoved(record: IpRecord): MovedIp {
  return { record, audit: [], events: [] }
}

/** The first word of a hold reason says its kind: figures change every day, the kind is what is news. */
function reasonKind(reason: string | null): string | null {
  return reason === null ? null : (reason.split(':', 1)[0] ?? null)
}

function targetState(record: IpRecord, to: Target): StoredIpState {
  if (to === 'same') return record.state
  return to === 'former' ? (record.formerState ?? 'cold') : to
}

function eventsOf(before: IpRecord, after: IpRecord, pool: string, move: IpMove): ServiceEvent[] {
  const { now, reason } = move
  const kind = eventKindOf(before, after, move)
  if (kind === null) return []
  const data: Record<string, string> = { ip: after.ip, pool, status: after.state }
  if (after.stage !== null) data['stage'] = String(after.stage)
  if (reason !== null) data['reason'] = reason
  return [{ id: newIdentifier('evt', now), kind, at: now, data }]
}

function eventKindOf(before: IpRecord, after: IpRecord, { action, isTold }: IpMove): EventKind | null {
  if (action === 'suspend') return isTold === true ? 'ip.blocklisted' : null
  if (action !== 'hold') return MOVES[action].event
  const isNew = reasonKind(before.holdReason) !== reasonKind(after.holdReason)
  return isNew || isTold === true ? 'ip.warmup.held' : null
}
