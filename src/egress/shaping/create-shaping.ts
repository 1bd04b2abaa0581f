/**
 * Shaping: what each path (egress IP, route) may do now, from what its receivers said before. `shaping.ts` says what is
 * promised; egress/README.md "Shaping" and "Reply rules".
 *
 *   1 ask     open-gate, message-rates          path-limits: configuration, new IP, rules; concurrency: what was learnt
 *   2 hear    heed-notes, heed-replies          back-off, reply-rules, suspensions on a ladder
 *   3 wake    one timer on the earliest end, then everybody who listens
 *   4 keep    tidyRecords, state-keeper         over restarts: saved-state
 */
import { type Clock, DAY, HOUR } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { createTimeHeap } from '../../base/time-heap.ts'
import type { Store } from '../../store/store.ts'
import { waitLeft, newBackOff } from './back-off.ts'
import { noteTraffic, openConnections, forgetConcurrency, isAsNew } from './concurrency.ts'
import { createHeedNotes } from './heed-notes.ts'
import { explainPath, viewsOf } from './hold-views.ts'
import { isHalfOpen, newLadder, stepAt } from './ladder.ts'
import { createMessageRates } from './message-rates.ts'
import { createOpenGate } from './open-gate.ts'
import { createOperatorActs } from './operator-acts.ts'
import { limitsNow, limitNow } from './path-limits.ts'
import {
  createShapingRecords,
  type ShapingRecords,
  type ShapingSettings,
  normalLimits,
  type PathRecord,
  type ShapingRecord,
} from './records.ts'
import type { ShapedPath, Shaping, ShapingSignals } from './shaping.ts'
import { createStateKeeper } from './state-keeper.ts'
import type { ProviderLimits, ProviderSettings } from '../../config/settings/provider-settings.ts'
import { forgetOldMatches } from './reply-rules.ts'
import { recentBlocks } from './heed-replies.ts'

interface ShapingOptions {
  clock: Clock
  logger: Logger
  store: Pick<Store, 'loadPathStates' | 'savePathStates'>
  /** What is in force; read at each use, so that a reload holds from the next message on. */
  settings: () => ShapingSettings
  signals: ShapingSignals
  /** Another node keeps what its paths are under; left out: of no IP. */
  isElsewhere?: (ip: string) => boolean
}

const TICKS_PER_WALK = 6

export function createShaping(options: ShapingOptions): Shaping {
  const { clock, logger, store, settings, signals, isElsewhere = () => false } = options
  const now = (): number => clock.now()
  const listeners: (() => void)[] = []
  const onOpen = (): void => listeners.forEach((listener) => listener())
  const wakeTimes = createWakeTimes(clock, onOpen)
  const records = createShapingRecords(settings)
  const keeper = createStateKeeper(store, now, logger, records)
  const rates = createMessageRates(records)
  const connections = createPoolConnections(records, onOpen)
  const gate = createOpenGate(now, records, rates, connections.of)
  const parts = { now, logger, settings, records, keeper, signals, wakeAt: wakeTimes.at, onOpen }
  const openOf = ({ key }: ShapedPath): number => records.paths.get(key)?.concurrency.openedAt.length ?? 0
  const { heedTry, heedConnection } = createHeedNotes(parts)
  let ticks = 0

  return {
    ...createOperatorActs(parts),
    async start() {
      await keeper.load((ip) => !isElsewhere(ip))
      for (const end of endsOf(records)) if (end > now()) wakeTimes.at(end)
    },
    async takeOver(ip) {
      forgetIp(records, ip)
      await keeper.load((of) => of === ip)
      for (const end of endsOf(records)) if (end > now()) wakeTimes.at(end)
    },
    async handOver(ip) {
      await keeper.saveAll()
      forgetIp(records, ip)
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
      const tokens = rates.take(path, record, limitsNow(path, record, at), { now: at, count })
      if (tokens.nextAt !== null) wakeTimes.at(tokens.nextAt)
      if (tokens.granted > 0) {
        noteTraffic(record.concurrency, at)
        noteProbeOfIp(records, path, at)
      }
      return tokens
    },
    giveBack(path, count) {
      const record = records.pathFor(path, now())
      rates.giveBack(path, record, limitsNow(path, record, now()), count)
    },
    noteTry: heedTry,
    noteConnections(path, notes) {
      for (const note of notes) {
        const before = openOf(path)
        heedConnection(path, note)
        connections.add(path.ip, openOf(path) - before)
      }
    },
    waitOf(path) {
      const record = records.paths.get(path.key)
      return record === undefined ? 0 : waitLeft(record.backOff, now())
    },
    views: () => viewsOf(records, settings().providers, now()),
    explain: (path, lane) => explainPath(records, path, lane, now()),
    async tick() {
      ticks++
      if (ticks % TICKS_PER_WALK === 0) {
        connections.recount(now())
        tidyRecords(records, settings().providers, now(), keeper.saveLater)
      }
      await keeper.tick()
    },
    onOpen: (listener) => void listeners.push(listener),
  }
}

/** What another node changes now. */
function forgetIp({ paths, ips }: ShapingRecords, ip: string): void {
  for (const [key, record] of paths) if (record.ip === ip) paths.delete(key)
  ips.delete(ip)
}

/** An IP that comes back after a suspension is tried by one message over one path. */
function noteProbeOfIp({ ips }: ShapingRecords, { ip, route }: ShapedPath, at: number): void {
  const record = ips.get(ip)
  if (record !== undefined && isHalfOpen(record.ladder, at)) record.probe = { route, at }
}

function endsOf({ paths, lanes, ips }: ShapingRecords): number[] {
  return [...paths.values(), ...lanes.values(), ...ips.values()].flatMap((record) => [
    record.ladder.suspension?.until ?? 0,
    record.kind === 'path' ? record.backOff.until : 0,
  ])
}

/**
 * How many connections the IPs of a pool have open together, as far as it was told: `connections_max` of pools.yaml
 * holds for all of them. `onOpen`: a pool has room again.
 */
function createPoolConnections(records: ShapingRecords, onOpen: () => void) {
  const open = new Map<string, number>()
  const of = (pool: string): number => open.get(pool) ?? 0
  return {
    of,
    add(ip: string, more: number): void {
      if (more === 0) return
      const pool = records.poolOf(ip)
      const before = of(pool)
      open.set(pool, before + more)
      const most = records.poolLimitsOf(ip)?.connections ?? null
      if (more < 0 && most !== null && before >= most) onOpen()
    },
    /** Connections whose end nobody told are gone by now. */
    recount(now: number): void {
      const before = [...open]
      open.clear()
      for (const { ip, concurrency } of records.paths.values()) {
        const count = openConnections(concurrency, now)
        if (count > 0) open.set(records.poolOf(ip), of(records.poolOf(ip)) + count)
      }
      if (before.some(([pool, count]) => of(pool) < count)) onOpen()
    },
  }
}

/** Times are told at its next multiple, so that a thousand rates wake nobody more often than that. */
const STEP_MILLISECONDS = 50

/** One timer for many times: it runs to the earliest, and all that are over by then are told at once. */
function createWakeTimes(clock: Clock, onTime: () => void) {
  const times = createTimeHeap<number>()
  let armedFor = Infinity
  let cancel: (() => void) | undefined

  function arm(): void {
    const earliest = times.peek()?.at ?? Infinity
    if (earliest >= armedFor) return
    cancel?.()
    armedFor = earliest
    cancel = clock.after(Math.max(0, earliest - clock.now()), fire)
  }

  function fire(): void {
    armedFor = Infinity
    const now = clock.now()
    let isOver = false
    for (; (times.peek()?.at ?? Infinity) <= now; times.pop()) isOver = true
    arm()
    if (isOver) onTime()
  }

  return {
    at(wanted: number): void {
      const time = Math.ceil(wanted / STEP_MILLISECONDS) * STEP_MILLISECONDS
      if (times.timeOf(time) !== undefined) return
      times.set(time, time)
      arm()
    },
    stop: () => cancel?.(),
  }
}

/** Longer than any threshold of a shipped rule reaches, and than any idle path is of interest. */
const FORGOTTEN_AFTER = DAY
const IDLE_PATH_FORGOTTEN_AFTER = HOUR

/** Lets go what is over, and forgets what says nothing any more. `onChange`: what is stored may be out of date. */
function tidyRecords(
  records: ShapingRecords,
  settings: ProviderSettings,
  now: number,
  onChange: (record: ShapingRecord) => void,
): void {
  for (const [key, record] of records.paths) {
    settlePath(record, normalLimits(record, settings), now)
    const idleFor = now - record.concurrency.usedAt
    if (idleFor <= IDLE_PATH_FORGOTTEN_AFTER) continue
    forgetConcurrency(record.concurrency, now, idleFor > FORGOTTEN_AFTER)
    if (saysNothing(record)) records.paths.delete(key)
    onChange(record)
  }
  for (const [key, record] of records.lanes) {
    forgetOldMatches(record.counts, now - FORGOTTEN_AFTER)
    settleLadder(record, now)
    if (!isFree(record) || record.counts.size > 0) continue
    records.lanes.delete(key)
    onChange(record)
  }
  for (const [key, record] of records.ips) {
    settleLadder(record, now)
    record.blocks = recentBlocks(record, now)
    if (!isFree(record) || record.blocks.length > 0 || record.heldProviders.size > 0) continue
    records.ips.delete(key)
    onChange(record)
  }
}

function settlePath(record: PathRecord, normal: ProviderLimits, now: number): void {
  forgetOldMatches(record.counts, now - FORGOTTEN_AFTER)
  settleLadder(record, now)
  for (const [rule, limit] of record.replyLimits) {
    if (limitNow(limit, normal, now) === null) record.replyLimits.delete(rule)
  }
  record.carefulHosts = record.carefulHosts.filter(({ until }) => until > now)
  const { backOff } = record
  const isStale = backOff.step > 0 && backOff.until < now - FORGOTTEN_AFTER
  if (isStale) record.backOff = { ...newBackOff(), hasWorked: backOff.hasWorked }
}

function settleLadder(record: ShapingRecord, now: number): void {
  const { ladder } = record
  if (ladder.suspension === null && ladder.step > 0 && stepAt(ladder, now) === 0) record.ladder = newLadder()
}

function isFree({ ladder }: ShapingRecord): boolean {
  return ladder.step === 0 && ladder.suspension === null
}

function saysNothing(record: PathRecord): boolean {
  const { concurrency, backOff, replyLimits, carefulHosts, counts } = record
  const isForgiven = backOff.failures === 0 && replyLimits.size === 0 && carefulHosts.length === 0
  return isFree(record) && isForgiven && counts.size === 0 && isAsNew(concurrency)
}
