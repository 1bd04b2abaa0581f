/**
 * One IP of pools.yaml with all that is known of it: what follows from its settings, its record and its curve. Pure.
 */
import type { EgressIpSettings, Pool } from '../../config/settings/pool-settings.ts'
import type { WarmupCurve } from '../../config/settings/warmup-settings.ts'
import type { IpRecord, StoredIpState } from '../../store/records/warmup-records.ts'
import type { NamedCurve } from '../warmup/warmup-curve.ts'
import type { IpMove, MovedIp } from '../warmup/warmup-states.ts'
import type { EgressIp, Sends } from './egress-ip.ts'

export interface KnownIp {
  ip: EgressIp
  record: IpRecord
  /** Of its record; before a warmup that of pools.yaml. */
  curve: NamedCurve
}

/** `decide`: what becomes of the record as it is; null: nothing. Resolves with undefined when there is no such IP. */
type Change<Decided> = (
  address: string,
  decide: (record: IpRecord, known: KnownIp) => Decided | null,
) => Promise<KnownIp | undefined>
export type ChangeIp = Change<MovedIp>
export type MoveIp = Change<Omit<IpMove, 'now'>>

export interface ConfiguredIp {
  pool: string
  poolSettings: Pool
  settings: EgressIpSettings
}

export function configuredIps(pools: Record<string, Pool>): ConfiguredIp[] {
  return Object.entries(pools).flatMap(([pool, poolSettings]) =>
    poolSettings.ips.map((settings) => ({ pool, poolSettings, settings })),
  )
}

/** `warmed: true` is read here alone: when an IP is seen for the first time. */
export function firstRecord({ address, warmed }: EgressIpSettings, now: number): IpRecord {
  const warmup = { curve: null, stage: null, targetDailyVolume: null, startedAt: null, holdReason: null }
  const days = { daysHeld: 0, daysAtTarget: 0, pausedAt: [], closedDay: null, lastSentAt: null }
  const state = { state: warmed ? ('warmed' as const) : ('cold' as const), since: now, actor: 'config' }
  return { ip: address, ...state, formerState: null, until: null, reason: null, ...warmup, ...days, version: 0 }
}

export function egressIp(
  { pool, poolSettings, settings }: ConfiguredIp,
  record: IpRecord,
  curve: WarmupCurve,
  halt: string | null,
): EgressIp {
  const { address, source, hostname, weight, enabled } = settings
  const newIpLimits = newIpLimitsOf(record, curve)
  const ip = { address, source, hostname, weight, pool, newIpLimits, poolLimits: poolSettings.limits }
  const reason = enabled ? halt : 'disabled in pools.yaml'
  if (reason !== null) return { ...ip, state: 'disabled', sends: 'nothing', reason, until: null }
  const { state, until } = record
  const sends = state === 'cold' && !poolSettings.require_warmup ? 'all' : SENDS[state]
  return { ...ip, state, sends, reason: record.reason, until }
}

function newIpLimitsOf({ state, stage }: IpRecord, { new_ip: limits }: WarmupCurve): EgressIp['newIpLimits'] {
  if (stage === null || state === 'warmed' || stage >= limits.until_stage) return null
  return { connections: limits.connections, messagesPerConnection: limits.messages_per_connection }
}

const SENDS: Readonly<Record<StoredIpState, Sends>> = {
  warmed: 'all',
  warming: 'allowance',
  paused: 'retries',
  cold: 'nothing',
  suspended: 'nothing',
}
