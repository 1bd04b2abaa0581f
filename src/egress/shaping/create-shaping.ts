/**
 * Shaping: what each path (egress IP, route) may do now, from what its receivers said before. `shaping.ts` says what is
 * promised; egress/README.md "Shaping" and "Reply rules".
 *
 *   1 ask     open-gate, message-rates          path-limits: configuration, new IP, rules; concurrency: what was learnt
 *   2 hear    heed-notes, heed-replies          back-off, reply-rules, suspensions on a ladder
 *   3 wake    wake-times                        one timer on the earliest end, then everybody who listens
 *   4 keep    tidy-records, state-keeper        over restarts: saved-state
 */
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Store } from '../../store/store.ts'
import { waitLeft } from './back-off.ts'
import { noteTraffic } from './concurrency.ts'
import { createHeedNotes } from './heed-notes.ts'
import { createHeedReplies } from './heed-replies.ts'
import { explainPath, viewsOf } from './hold-views.ts'
import { createIpReach } from './ip-reach.ts'
import { isHalfOpen } from './ladder.ts'
import { createMessageRates } from './message-rates.ts'
import { createOpenGate } from './open-gate.ts'
import { createOperatorActs } from './operator-acts.ts'
import { limitsNow } from './path-limits.ts'
import { createPoolConnections } from './pool-connections.ts'
import { createShapingRecords, type ShapingRecords, type ShapingSettings } from './records.ts'
import type { ShapedPath, Shaping, ShapingSignals } from './shaping.ts'
import { createStateKeeper } from './state-keeper.ts'
import { createSuspensions } from './suspensions.ts'
import { tidyRecords } from './tidy-records.ts'
import { createWakeTimes } from './wake-times.ts'

interface ShapingOptions {
  clock: Clock
  logger: Logger
  store: Pick<Store, 'loadPathStates' | 'savePathStates'>
  /** What is in force; read at each use, so that a reload holds from the next message on. */
  settings: () => ShapingSettings
  signals: ShapingSignals
}

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
  const connections = createPoolConnections(records, onOpen)
  const gate = createOpenGate({ now, records, rates, openConnectionsOf: connections.of })
  const parts = { now, logger, records, keeper, signals, wakeAt: wakeTimes.at, onOpen }
  const suspensions = createSuspensions(parts)
  const replies = createHeedReplies({ ...parts, settings, suspensions })
  const heed = createHeedNotes({ ...parts, replies, suspensions, reach: createIpReach() })
  let ticks = 0

  return {
    ...createOperatorActs(parts),
    async start() {
      await keeper.load()
      for (const end of endsOf(records)) if (end > now()) wakeTimes.at(end)
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
    noteTry: heed.heedTry,
    noteConnections(path, notes) {
      for (const note of notes) {
        const before = records.paths.get(path.key)?.concurrency.openedAt.length ?? 0
        heed.heedConnection(path, note)
        connections.add(path.ip, (records.paths.get(path.key)?.concurrency.openedAt.length ?? 0) - before)
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
