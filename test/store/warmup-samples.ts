/**
 * Warming IPs and what is asked for them, as the tests of the store use them.
 */
import { DAY } from '../../src/base/clock.ts'
import { startOfUtcDay, utcDay } from '../../src/base/utc-day.ts'
import type {
  AllowanceRule,
  AuditRecord,
  IpChange,
  IpRecord,
  ReserveRequest,
} from '../../src/store/records/warmup-records.ts'
import { NOW } from './store-samples.ts'

export const IP = '127.0.0.11'
/** Midnight of the day of NOW. */
export const MIDNIGHT = startOfUtcDay(utcDay(NOW))

/** Stage 1 of `standard` on the day of `at`. */
export function allowanceRule(at = NOW, changes: Partial<AllowanceRule> = {}): AllowanceRule {
  const day = utcDay(at)
  const cap = changes.cap ?? 50
  const share = (part: number): number => Math.min(cap, Math.max(5, Math.ceil(cap * part)))
  return {
    day,
    cap,
    providerCaps: { gmail: share(0.5), outlook: share(0.35), yahoo: share(0.3), icloud: share(0.2) },
    defaultProviderCap: share(0.35),
    windowFrom: startOfUtcDay(day),
    windowTo: startOfUtcDay(day) + DAY,
    burstFraction: 0.02,
    minBurst: 5,
    maxBurst: 500,
    hourlyFraction: 0.125,
    ...changes,
  }
}

export function ask(
  now: number,
  count: number,
  { ip = IP, isp = 'gmail', ...rule }: Partial<AllowanceRule> & { ip?: string; isp?: string } = {},
): ReserveRequest {
  return { now, asks: [{ ip, isp, count, rule: allowanceRule(now, rule) }] }
}

export function ipRecord(changes: Partial<IpRecord> = {}): IpRecord {
  return {
    ip: IP,
    state: 'cold',
    formerState: null,
    until: null,
    reason: null,
    actor: 'config',
    since: NOW,
    curve: null,
    stage: null,
    targetDailyVolume: null,
    startedAt: null,
    holdReason: null,
    daysHeld: 0,
    daysAtTarget: 0,
    pausedAt: [],
    closedDay: null,
    lastSentAt: null,
    version: 0,
    ...changes,
  }
}

export function warmingRecord(changes: Partial<IpRecord> = {}): IpRecord {
  return ipRecord({
    state: 'warming',
    curve: 'standard',
    stage: 1,
    targetDailyVolume: 100_000,
    startedAt: MIDNIGHT,
    ...changes,
  })
}

export function auditRecord(changes: Partial<AuditRecord> = {}): AuditRecord {
  return {
    at: NOW,
    ip: IP,
    actor: 'key_1',
    action: 'start',
    fromState: 'cold',
    toState: 'warming',
    fromStage: null,
    toStage: 1,
    day: null,
    figures: {},
    reason: null,
    ...changes,
  }
}

export function ipChange(record: IpRecord, changes: Partial<IpChange> = {}): IpChange {
  return { record, audit: [auditRecord({ ip: record.ip })], events: [], caps: null, ...changes }
}
