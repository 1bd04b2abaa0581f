/**
 * Shaping: what each path (egress IP, route) may do now, from what its receivers said before. See `./shaping.ts` for
 * what is promised; egress/README.md "Shaping" and "Reply rules".
 *
 *   1 ask     open-gate, message-rates      limits-now: configuration, new IP, rules; concurrency: what was learnt
 *   2 hear    heed-notes                    back-off, reply-rules and match-counts, suspensions on a ladder
 *   3 wake    wake-times                    one timer on the earliest end, then everybody who listens
 *   4 keep    state-keeper, saved-state     over restarts
 */
import { DAY, HOUR } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Store } from '../../store/store.ts'
import { createReplyRules } from './reply-rules.ts'
import type { ReplyRules } from './reply-rules.ts'
import type { PathFilter, PathView, ShapedPath, Shaping, ShapingSignals } from './shaping.ts'
import { newBackOff, waitLeft } from './back-off.ts'
import { forgetConcurrency, isAsNew, noteTraffic, openConnections } from './concurrency.ts'
import { createHeedNotes } from './heed-notes.ts'
import { laneView, limitTexts, pathView, suspensionText, waitText } from './hold-views.ts'
import { createIpReach } from './ip-reach.ts'
import { isHalfOpen, lift, newLadder, stepAt } from './ladder.ts'
import { limitsNow } from './limits-now.ts'
import { forgetOldMatches } from './match-counts.ts'
import { createMessageRates } from './message-rates.ts'
import { createOpenGate } from './open-gate.ts'
import { operatorText, operatorView } from './operator-suspensions.ts'
import type { HeldProvider } from './operator-suspensions.ts'
import { createShapingRecords, laneKey } from './records.ts'
import type { IpRecord, LaneRecord, PathRecord, ShapingRecord, ShapingSettings } from './records.ts'
import { limitNow } from './reply-limits.ts'
import { createStateKeeper } from './state-keeper.ts'
import { createSuspensions, recentBlocks } from './suspensions.ts'
import { createWakeTimes } from './wake-times.ts'

export interface ShapingOptions {
  clock: Clock
  logger: Logger
  store: Pick<Store, 'loadPathStates' | 'savePathStates'>
  /** What is in force; read at each use, so that a reload holds from the next message on. */
  settings: () => ShapingSettings
  signals: ShapingSignals
}

/** Longer than any threshold of a shipped rule reaches, and than any idle path is of interest. */
const FORGOTTEN_AFTER = DAY
const IDLE_PATH_FORGOTTEN_AFTER = HOUR
/** Ticks between two walks over everything that is known. */
const TICKS_PER_WALK = 6

export function createShaping({ clock, logger, store, settings, signals }: ShapingOptions): Shaping {
  const now = (): number => clock.now()
  const listeners: (() => void)[] = []
  const onOpen = (): void => listeners.forEach((listener) => listener())
  const wakeTimes = createWakeTimes({ clock, onTime: onOpen })
  const records = createShapingRecords(settings)
  const keeper = createStateKeeper({ store, now, logger, records })
  const rates = createMessageRates(records)
  const openByPool = new Map<string, number>()
  const gate = createOpenGate({ now, records, rates, openConnectionsOf: (pool) => openByPool.get(pool) ?? 0 })
  const noted = { onChange: keeper.saveSoon, wakeAt: wakeTimes.at, onOpen }
  const suspensions = createSuspensions({ records, logger, signals, ...noted })
  const rules = liveRules(settings)
  const heed = createHeedNotes({
    now,
    logger,
    records,
    rules,
    suspensions,
    signals,
    reach: createIpReach(),
    onTouch: keeper.saveLater,
    ...noted,
  })
  let ticks = 0

  function countOpened(ip: string, more: number): void {
    if (more === 0) return
    const pool = records.poolOf(ip)
    const before = openByPool.get(pool) ?? 0
    openByPool.set(pool, before + more)
    const most = records.poolLimitsOf(ip)?.connections ?? null
    if (more < 0 && most !== null && before >= most) onOpen()
  }

  const normalLimits = ({ limits, provider }: PathRecord): ShapingSettings['providers']['default'] => {
    const { providers } = settings()
    return limits ?? (provider === null ? undefined : providers.providers[provider]) ?? providers.default
  }

  /** Lets go what is over, forgets what says nothing, and counts the open connections anew. */
  function walk(): void {
    const at = now()
    const openBefore = new Map(openByPool)
    openByPool.clear()
    for (const [key, record] of records.paths) {
      settlePath(record, normalLimits(record), at)
      const open = openConnections(record.concurrency, at)
      if (open > 0) openByPool.set(records.poolOf(record.ip), (openByPool.get(records.poolOf(record.ip)) ?? 0) + open)
      const idleFor = at - record.concurrency.usedAt
      if (idleFor <= IDLE_PATH_FORGOTTEN_AFTER) continue
      forgetConcurrency(record.concurrency, at, idleFor > FORGOTTEN_AFTER)
      if (saysNothing(record)) records.paths.delete(key)
      keeper.saveLater(record)
    }
    // Some had ended, and nobody had said so.
    if ([...openBefore].some(([pool, before]) => (openByPool.get(pool) ?? 0) < before)) onOpen()
    for (const [key, record] of records.lanes) {
      forgetOldMatches(record.counts, at - FORGOTTEN_AFTER)
      settleLadder(record, at)
      if (record.ladder.step === 0 && record.ladder.suspension === null && record.counts.size === 0) {
        records.lanes.delete(key)
        keeper.saveLater(record)
      }
    }
    for (const [key, record] of records.ips) {
      settleLadder(record, at)
      record.blocks = recentBlocks(record, at)
      const isQuiet = record.ladder.step === 0 && record.ladder.suspension === null && record.blocks.length === 0
      if (!isQuiet || record.heldProviders.size > 0) continue
      records.ips.delete(key)
      keeper.saveLater(record)
    }
  }

  function resumePath(record: PathRecord): boolean {
    const { ladder, backOff, replyLimits } = record
    const isHeld = ladder.suspension !== null || backOff.step > 0 || replyLimits.size > 0
    lift(ladder)
    record.backOff = { ...newBackOff(), hasWorked: backOff.hasWorked }
    replyLimits.clear()
    record.pace.arrivalAt = 0
    return isHeld
  }

  function resume({ ip, route, provider }: PathFilter): number {
    const isMeant = (record: { ip?: string; route?: string; provider?: string | null }): boolean =>
      (ip === undefined || record.ip === ip) &&
      (route === undefined || record.route === route) &&
      (provider === undefined || record.provider === provider)
    const paths = [...records.paths.values()].filter(isMeant)
    const lifted: ShapingRecord[] = paths.filter(resumePath)
    // A lane has all IPs of a pool: one IP alone does not name it.
    const lanes = ip === undefined ? [...records.lanes.values()].filter(isMeant) : []
    const ips = route === undefined && provider === undefined ? [...records.ips.values()].filter(isMeant) : []
    for (const record of [...lanes, ...ips]) {
      if (record.ladder.suspension === null) continue
      lift(record.ladder)
      if (record.kind === 'lane') lifted.push(record)
      else keeper.saveSoon(record)
    }
    for (const held of heldProviders()) {
      if (!isMeant({ ...held, route: held.provider })) continue
      const record = records.ipFor(held.ip)
      record.heldProviders.delete(held.provider)
      lifted.push(record)
    }
    for (const record of lifted) keeper.saveSoon(record)
    if (lifted.length > 0) logger.info({ ip, route, provider, paths: lifted.length }, 'paths resumed')
    onOpen()
    return lifted.length
  }

  function heldProviders(): HeldProvider[] {
    return [...records.ips.values()].flatMap(heldProvidersOf)
  }

  function views(): PathView[] {
    const at = now()
    const all = [
      ...[...records.paths.values()].map((record) => pathView(record, normalLimits(record), at)),
      ...[...records.lanes.values()].map((record) => laneView(record, at)),
      ...heldProviders().map((held) => operatorView(held, ispOf(held.provider))),
    ]
    const endOf = ({ holds }: PathView): number => Math.max(...holds.map(({ until }) => until ?? Infinity))
    return all
      .filter(({ holds }) => holds.length > 0)
      .toSorted((left, right) => (endOf(left) === endOf(right) ? 0 : endOf(right) - endOf(left)))
  }

  const ispOf = (provider: string): string => settings().providers.providers[provider]?.isp ?? provider

  return {
    async start() {
      await keeper.load()
      const ends = [...records.paths.values(), ...records.lanes.values(), ...records.ips.values()].flatMap((record) => [
        record.ladder.suspension?.until ?? 0,
        record.kind === 'path' ? record.backOff.until : 0,
      ])
      for (const end of ends) if (end > now()) wakeTimes.at(end)
    },
    async stop() {
      wakeTimes.stop()
      await keeper.saveAll()
    },
    gate(path, lane) {
      const answer = gate(path, lane)
      if (answer.kind === 'closed' && answer.waitingFor === 'rate' && answer.until !== null) wakeTimes.at(answer.until)
      return answer
    },
    take(path, count) {
      const at = now()
      const record = records.pathFor(path, at)
      const tokens = rates.take(path, record, limitsNow(path, record, at), at, count)
      if (tokens.nextAt !== null) wakeTimes.at(tokens.nextAt)
      if (tokens.granted > 0) noteSending(path, record, at)
      return tokens
    },
    giveBack(path, count) {
      const record = records.pathFor(path, now())
      rates.giveBack(path, record, limitsNow(path, record, now()), count)
    },
    noteTry: heed.heedTry,
    noteConnections(path, notes) {
      for (const note of notes) {
        const before = records.paths.get(path.key)?.concurrency.openedAt.length ?? 0
        heed.heedConnection(path, note)
        countOpened(path.ip, (records.paths.get(path.key)?.concurrency.openedAt.length ?? 0) - before)
      }
    },
    waitOf(path) {
      const record = records.paths.get(path.key)
      return record === undefined ? 0 : waitLeft(record.backOff, now())
    },
    views,
    async suspend({ ip, provider, reason, actor }) {
      const record = records.ipFor(ip)
      record.heldProviders.set(provider, { since: now(), actor, reason })
      keeper.saveSoon(record)
      logger.warn({ ip, provider, actor, reason }, 'paths suspended by hand')
      await keeper.tick()
    },
    resume,
    explain(path, lane) {
      const at = now()
      const record = records.paths.get(path.key)
      const laneRecord = records.lanes.get(laneKey(records.poolOf(path.ip), path.route, lane.domain))
      const ip = records.ips.get(path.ip)
      const byHand = ip === undefined ? [] : heldProvidersOf(ip).filter(({ provider }) => provider === path.provider)
      return [
        ...byHand.map(operatorText),
        ip === undefined ? '' : suspensionText(ip.ladder, `the IP ${path.ip}`, at),
        record === undefined ? '' : suspensionText(record.ladder, `the path from ${path.ip} to ${path.route}`, at),
        laneRecord === undefined ? '' : laneText(laneRecord, at),
        record === undefined || record.backOff.step === 0 ? '' : waitText(record, at),
        ...(record === undefined ? [] : limitTexts(record, path.limits, at)),
      ].filter((text) => text !== '')
    },
    async tick() {
      ticks++
      if (ticks % TICKS_PER_WALK === 0) walk()
      await keeper.tick()
    },
    onOpen(listener) {
      listeners.push(listener)
    },
  }

  /** An IP that comes back after a suspension is tried by one message over one path. */
  function noteSending(path: ShapedPath, record: PathRecord, at: number): void {
    noteTraffic(record.concurrency, at)
    const ip = records.ips.get(path.ip)
    if (ip !== undefined && isHalfOpen(ip.ladder, at)) ip.probe = { route: path.route, at }
  }
}

function heldProvidersOf({ ip, heldProviders }: IpRecord): HeldProvider[] {
  return [...heldProviders].map(([provider, suspension]) => ({ ip, provider, suspension }))
}

function laneText({ ladder, domain, route }: LaneRecord, now: number): string {
  return suspensionText(ladder, `mail of ${domain} to ${route}`, now)
}

/** Compiled once for each configuration. */
function liveRules(settings: () => ShapingSettings): () => ReplyRules {
  let list: ShapingSettings['providers']['replies'] | undefined
  let rules = createReplyRules([])
  return () => {
    const { replies } = settings().providers
    if (list !== replies) {
      rules = createReplyRules(replies)
      list = replies
    }
    return rules
  }
}

function settlePath(record: PathRecord, normal: ShapingSettings['providers']['default'], now: number): void {
  forgetOldMatches(record.counts, now - FORGOTTEN_AFTER)
  settleLadder(record, now)
  for (const [rule, limit] of record.replyLimits) {
    if (limitNow(limit, normal, now) === null) record.replyLimits.delete(rule)
  }
  const { backOff } = record
  const isStale = backOff.step > 0 && backOff.until < now - FORGOTTEN_AFTER
  if (isStale) record.backOff = { ...newBackOff(), hasWorked: backOff.hasWorked }
}

function settleLadder(record: ShapingRecord, now: number): void {
  const { ladder } = record
  if (ladder.suspension === null && ladder.step > 0 && stepAt(ladder, now) === 0) record.ladder = newLadder()
}

function saysNothing({ concurrency, backOff, ladder, replyLimits, counts }: PathRecord): boolean {
  const isQuiet = backOff.failures === 0 && ladder.step === 0 && ladder.suspension === null
  return isQuiet && replyLimits.size === 0 && counts.size === 0 && isAsNew(concurrency)
}
