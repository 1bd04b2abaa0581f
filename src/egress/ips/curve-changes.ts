/**
 * What a changed file means for IPs that warm up (egress/README.md "Curves" and "Audit"). Another curve in pools.yaml,
 * or a curve that is gone: the IP goes on at the stage of the new one that allows no more than it had. Another curve is
 * only seen while running: after a start the one that the IP was started with holds on. Other numbers for a stage, or
 * other shares: today's rows follow at once. Each is an audit row. Rejects when the store does.
 */
import { dayAfter, utcDay } from '../../base/utc-day.ts'
import type { WarmupSettings } from '../../config/settings/warmup-settings.ts'
import type { AllowanceRule, IpRecord } from '../../store/records/warmup-records.ts'
import { ALL_ISPS, allowanceRule, capOf, findCurve, stageWithin } from '../warmup/warmup-curve.ts'
import { isInWarmup } from '../warmup/warmup-states.ts'
import { configuredIps, type KnownIp, type MoveIp } from './known-ip.ts'
import type { EgressOutside } from './outside.ts'

/** The part of the registry that changes go through. */
interface ChangeableIps {
  find(address: string): KnownIp | undefined
  known(): readonly KnownIp[]
  move: MoveIp
}

/** Days whose rows tell what a curve allowed that is gone. */
const DAYS_REMEMBERED = 60

/** What an IP had before it took another curve: taken back, that costs nothing while nothing else has changed. */
interface LeftCurve {
  curve: string | null
  stage: number
  cap: number
  /** Of the record behind that change. */
  version: number
}

export function createCurveChanges({ configuration, store, clock }: EgressOutside, registry: ChangeableIps) {
  let curvesInForce = new Map<string, string | null>()
  let settingsInForce: WarmupSettings | undefined
  const lastCaps = new Map<string, number>()
  const left = new Map<string, LeftCurve>()

  function isCurveGone(record: IpRecord | undefined): boolean {
    const name = record?.curve ?? null
    return name !== null && configuration.current().warmup.curves[name] === undefined
  }

  /** What its stage allowed when its curve was there; 0: nobody knows, and it begins at stage 1. */
  async function lastCapOf(address: string): Promise<number> {
    const remembered = lastCaps.get(address)
    if (remembered !== undefined) return remembered
    const days = await store.warmupDays(address, dayAfter(utcDay(clock.now()), -DAYS_REMEMBERED))
    return days.findLast(({ isp }) => isp === ALL_ISPS)?.cap ?? 0
  }

  async function takeCurve(address: string, wanted: string | null, lastCap: number): Promise<void> {
    const { warmup } = configuration.current()
    const before = left.get(address)
    let leaving: Omit<LeftCurve, 'version'> | undefined
    const moved = await registry.move(address, (record) => {
      const next = findCurve(warmup, [wanted])
      if (!isInWarmup(record) || next.name === record.curve) return null
      // The same change may give its former curve other numbers.
      const earlier = record.curve === null ? undefined : (settingsInForce ?? warmup).curves[record.curve]
      const cap = earlier === undefined ? lastCap : capOf(earlier, record.stage ?? 1)
      leaving = { curve: record.curve, stage: record.stage ?? 1, cap }
      const reason = `curve ${record.curve ?? ''} -> ${next.name}`
      const isBack = before?.curve === next.name && before.version === record.version
      const stageBefore = isBack && capOf(next.curve, before.stage) <= before.cap ? before.stage : null
      const changes = { curve: next.name, stage: stageBefore ?? stageWithin(next.curve, cap) }
      return { action: 'stage', actor: 'config', reason, changes }
    })
    if (leaving === undefined || moved === undefined || moved.record.curve === leaving.curve) return
    left.set(address, { ...leaving, version: moved.record.version })
  }

  async function followCurves(): Promise<void> {
    const configured = configuredIps(configuration.current().pools.pools).map(({ settings }) => settings)
    for (const { address, curve } of configured) {
      const before = curvesInForce.get(address)
      const isOther = before !== undefined && before !== curve
      const isGone = isCurveGone(registry.find(address)?.record)
      if (isOther || isGone) await takeCurve(address, curve, isGone ? await lastCapOf(address) : 0)
    }
    curvesInForce = new Map(configured.map(({ address, curve }) => [address, curve]))
    settingsInForce = configuration.current().warmup
  }

  async function followCaps({ ip: { address }, record }: KnownIp): Promise<void> {
    if (!isInWarmup(record)) return
    const today = utcDay(clock.now())
    const rows = (await store.warmupDays(address, today)).filter(({ day }) => day === today)
    await registry.move(address, (current, { curve }) => {
      if (!isInWarmup(current)) return null
      const rule = allowanceRule(curve.curve, current.stage ?? 1, today)
      const other = rows.find((row) => !isUsedUp(row) && row.cap !== Math.max(row.granted, capIn(rule, row.isp)))
      if (other === undefined) return null
      const whose = other.isp === ALL_ISPS ? '' : ` to ${other.isp}`
      const reason = `curve ${curve.name}: ${other.cap} -> ${capIn(rule, other.isp)} a day${whose}`
      return { action: 'stage', actor: 'config', reason }
    })
  }

  return {
    /** What the stage of the IP allows a day, as long as its curve is there. */
    remember({ record, curve }: KnownIp): void {
      const { ip, stage } = record
      if (stage !== null && curve.name === record.curve) lastCaps.set(ip, capOf(curve.curve, stage))
    },
    /** The files have changed, or were read for the first time. */
    async follow(): Promise<void> {
      await followCurves()
      for (const known of registry.known()) await followCaps(known)
    },
  }
}

/** Of a day on which the IP sends nothing, since a restore. */
function isUsedUp({ isp, cap }: { isp: string; cap: number }): boolean {
  return isp === ALL_ISPS && cap === 0
}

function capIn({ cap, providerCaps, defaultProviderCap }: AllowanceRule, isp: string): number {
  return isp === ALL_ISPS ? cap : (providerCaps[isp] ?? defaultProviderCap)
}
