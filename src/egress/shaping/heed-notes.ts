/**
 * What the end of a message or of a connection means for its path: concurrency, back-off, probes. Refusals go on to
 * `heed-replies.ts`.
 *
 * | what came                                     | concurrency | back-off | rules | what a probe learns            |
 * | --------------------------------------------- | ----------- | -------- | ----- | ------------------------------ |
 * | 2xx to the dot                                | may grow    | ends     |       | passes                         |
 * | other 4xx, 5xx to MAIL … dot                  |             | ends     | yes   | a block: again; else: passes   |
 * | 421, also between messages                    | halves      | counts   | yes   | a block: again                 |
 * | no connection, banner or EHLO refused         | halves      | counts   | yes   | a block: again                 |
 * | no socket or port free on this machine        |             |          |       |                                |
 * | connection dropped in the dialogue            | halves      |          |       |                                |
 *
 * Never throws. egress/README.md "Concurrency", "Back-off of a path".
 */
import { MINUTE } from '../../base/clock.ts'
import { recentEntries } from '../../base/recent-entries.ts'
import { noteAnswer, noteFailure } from './back-off.ts'
import { withCarefulHost } from './careful-hosts.ts'
import {
  halve,
  noteDelivered,
  noteEnded,
  noteEndedWell,
  noteOpened,
  noteTraffic,
  usableConnections,
} from './concurrency.ts'
import { createHeedReplies, createSuspensions } from './heed-replies.ts'
import { isSuspended } from './ladder.ts'
import { limitsNow } from './path-limits.ts'
import type { PathRecord } from './records.ts'
import type { ShapingParts } from './state-keeper.ts'
import { SOCKET_WAIT, type ConnectionNote, type Lane, type ShapedPath, type TryNote } from './shaping.ts'

const CLOSING = 421
/** A 421 between two messages stands where MAIL would have. */
const STAGE_OF_CLOSING = 'mail'
const SOCKETS_SAID_EVERY = MINUTE

export function createHeedNotes(parts: ShapingParts) {
  const { records, keeper } = parts
  const suspensions = createSuspensions(parts)
  const heedRefusal = createHeedReplies(parts, suspensions)
  const { heedTrouble, heedAnswer } = createPathHealth(parts)
  const heedNoSocket = createHeedNoSocket(parts)
  const reach = createIpReach()

  /** Its message may have been the one that the IP was tried with. */
  function endProbeOfIp({ ip, route }: ShapedPath): void {
    const record = records.ips.get(ip)
    if (record?.probe?.route !== route) return
    record.probe = null
    parts.onOpen()
  }

  function heedFailure(path: ShapedPath, record: PathRecord, note: ConnectionNote & { kind: 'failed' }): void {
    const { stage, reply, reason, wasRequiredTls } = note
    // Where plain text is allowed, it goes on without TLS.
    if (stage === 'starttls' && !wasRequiredTls) return
    heedTrouble(path, record, reply?.text ?? reason)
    if (reply !== null) heedRefusal(path, record, { reply, stage, category: null, lane: null })
    if (stage !== 'connect') return
    const unreachable = reach.noteFailed(path.ip, path.route, parts.now())
    if (unreachable !== undefined) parts.signals.onIpUnreachable(path.ip, unreachable)
  }

  return {
    heedTry(path: ShapedPath, lane: Lane, note: TryNote): void {
      const now = parts.now()
      const record = records.pathFor(path, now)
      noteTraffic(record.concurrency, now)
      if (note.kind === 'delivered') {
        heedAnswer(record)
        noteDelivered(record.concurrency, limitsNow(path, record, now).connections)
        suspensions.notePathPassed(path, record, now)
        const known = records.findLane(path, lane)
        if (known !== undefined) suspensions.noteLanePassed(known, now)
      } else if (note.kind === 'refused') {
        const { reply, stage, category } = note
        if (reply.code === CLOSING) heedTrouble(path, record, reply.text)
        else heedAnswer(record)
        heedRefusal(path, record, { reply, stage, category, lane })
      } else if (note.kind === 'no-socket') heedNoSocket(path, record, note.reason)
      endProbeOfIp(path)
    },
    heedConnection(path: ShapedPath, note: ConnectionNote): void {
      const now = parts.now()
      const record = records.pathFor(path, now)
      const { concurrency } = record
      switch (note.kind) {
        case 'opened':
          noteOpened(concurrency, now, limitsNow(path, record, now).connections)
          return reach.noteOpened(path.ip, path.route, now)
        case 'ended-well':
          noteEndedWell(concurrency, now, limitsNow(path, record, now).connections, note.delivered)
          return keeper.saveLater(record)
        case 'careful': {
          const hosts = withCarefulHost(record.carefulHosts, { ...note, now })
          if (hosts === null) return
          record.carefulHosts = hosts
          const { ip, route } = path
          parts.logger.info({ ip, route, host: note.host, reason: note.reason }, 'no flights to a host for a day')
          return keeper.saveSoon(record)
        }
        case 'failed':
          noteTraffic(concurrency, now)
          return heedFailure(path, record, note)
        case 'dropped':
          noteEnded(concurrency, now)
          halve(concurrency, now)
          return keeper.saveLater(record)
        default:
          noteEnded(concurrency, now)
          heedTrouble(path, record, note.reply.text)
          heedRefusal(path, record, { reply: note.reply, stage: STAGE_OF_CLOSING, category: null, lane: null })
      }
    },
  }
}

function createPathHealth({ now: timeNow, keeper, logger, wakeAt, onOpen }: ShapingParts) {
  return {
    heedTrouble({ ip, route, isp, limits }: ShapedPath, record: PathRecord, reason: string): void {
      const now = timeNow()
      if (isSuspended(record.ladder, now)) return
      halve(record.concurrency, now)
      const facts = { now, reason, allowed: limits.failures, usable: usableConnections(record.concurrency, now) }
      if (!noteFailure(record.backOff, facts)) return keeper.saveLater(record)
      keeper.saveSoon(record)
      const { until, step, failures } = record.backOff
      wakeAt(until)
      logger.warn({ ip, route, isp, reason, until, step, failures }, 'path left alone')
    },
    heedAnswer(record: PathRecord): void {
      const wasProbing = record.backOff.step > 0
      if (!noteAnswer(record.backOff)) return
      keeper.saveSoon(record)
      if (wasProbing) onOpen()
    },
  }
}

/** It is the machine's and of a moment: the path takes nothing for some seconds, and nothing else follows. */
function createHeedNoSocket({ now: timeNow, logger, wakeAt }: ShapingParts) {
  let saidAt = -Infinity
  return ({ ip, route }: ShapedPath, record: PathRecord, reason: string): void => {
    const now = timeNow()
    record.noSocket = { until: now + SOCKET_WAIT, reason }
    wakeAt(now + SOCKET_WAIT)
    // All paths lack them at once.
    if (Math.abs(now - saidAt) < SOCKETS_SAID_EVERY) return
    saidAt = now
    logger.error({ ip, route, reason }, 'this machine has no socket or port free for a connection: mail waits')
  }
}

interface Reach {
  /** The last connection; at first when it was tried for the first time. */
  openedAt: number
  failed: Map<string, number>
  isTold: boolean
}

const UNREACHABLE_AFTER = 5 * MINUTE
/** Between two tries of one path are up to 5 min at that time. */
const FAILURE_COUNTS_FOR = 10 * MINUTE
const LEAST_ROUTES = 3
const MOST_ROUTES = 20_000

/**
 * Finds an IP that reaches nobody while others reach the same receivers: filtered on the way, or not ours any more
 * (egress/README.md "Back-off of a path"). Told once.
 */
function createIpReach() {
  const reaches = new Map<string, Reach>()
  const lastOpened = recentEntries<string, { ip: string; at: number }>(MOST_ROUTES)

  function reachOf(ip: string, now: number): Reach {
    const known = reaches.get(ip) ?? { openedAt: now, failed: new Map(), isTold: false }
    reaches.set(ip, known)
    return known
  }

  return {
    noteOpened(ip: string, route: string, now: number): void {
      const reach = reachOf(ip, now)
      reach.openedAt = now
      reach.failed.clear()
      reach.isTold = false
      lastOpened.set(route, { ip, at: now })
    },
    /** No TCP connection came about; the sentence to disable the IP with, or undefined. */
    noteFailed(ip: string, route: string, now: number): string | undefined {
      const reach = reachOf(ip, now)
      reach.failed.set(route, now)
      if (reach.isTold || now - reach.openedAt < UNREACHABLE_AFTER) return undefined
      for (const [failed, at] of reach.failed) if (now - at > FAILURE_COUNTS_FOR) reach.failed.delete(failed)
      const other = [...reach.failed.keys()]
        .map((failed) => lastOpened.get(failed))
        .find((opened) => opened !== undefined && opened.ip !== ip && now - opened.at < UNREACHABLE_AFTER)
      const count = reach.failed.size
      if (count < LEAST_ROUTES || other === undefined) return undefined
      reach.isTold = true
      const minutes = UNREACHABLE_AFTER / MINUTE
      return `none of ${count} receivers answers this IP for ${minutes} min, while ${other.ip} reaches them`
    },
  }
}
