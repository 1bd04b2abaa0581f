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
 * | connection dropped in the dialogue            | halves      |          |       |                                |
 *
 * Never throws. egress/README.md "Concurrency", "Back-off of a path".
 */
import { noteAnswer, noteFailure } from './back-off.ts'
import {
  halve,
  noteDelivered,
  noteEnded,
  noteEndedWell,
  noteOpened,
  noteTraffic,
  usableConnections,
} from './concurrency.ts'
import type { HeedReplies } from './heed-replies.ts'
import type { IpReach } from './ip-reach.ts'
import { isSuspended } from './ladder.ts'
import { limitsNow } from './path-limits.ts'
import type { PathRecord } from './records.ts'
import type { ShapingParts } from './shaping-parts.ts'
import type { ConnectionNote, Lane, ShapedPath, TryNote } from './shaping.ts'
import type { Suspensions } from './suspensions.ts'

interface HeedNotes {
  heedTry(path: ShapedPath, lane: Lane, note: TryNote): void
  heedConnection(path: ShapedPath, note: ConnectionNote): void
}

interface HeedNotesParts extends ShapingParts {
  replies: HeedReplies
  suspensions: Suspensions
  reach: IpReach
}

const CLOSING = 421
/** A 421 between two messages stands where MAIL would have. */
const STAGE_OF_CLOSING = 'mail'

export function createHeedNotes(parts: HeedNotesParts): HeedNotes {
  const { records, keeper, suspensions, replies, reach } = parts
  const { heedTrouble, heedAnswer } = createPathHealth(parts)

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
    if (reply !== null) replies.heedRefusal(path, record, { reply, stage, category: null, lane: null })
    if (stage !== 'connect') return
    const unreachable = reach.noteFailed(path.ip, path.route, parts.now())
    if (unreachable !== undefined) parts.signals.onIpUnreachable(path.ip, unreachable)
  }

  return {
    heedTry(path, lane, note) {
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
        replies.heedRefusal(path, record, { reply, stage, category, lane })
      }
      endProbeOfIp(path)
    },
    heedConnection(path, note) {
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
          replies.heedRefusal(path, record, { reply: note.reply, stage: STAGE_OF_CLOSING, category: null, lane: null })
      }
    },
  }
}

interface PathHealth {
  /** Its hosts did not answer, or closed the connection. */
  heedTrouble(path: ShapedPath, record: PathRecord, reason: string): void
  heedAnswer(record: PathRecord): void
}

function createPathHealth(parts: ShapingParts): PathHealth {
  const { keeper } = parts
  return {
    heedTrouble(path: ShapedPath, record: PathRecord, reason: string): void {
      const now = parts.now()
      if (isSuspended(record.ladder, now)) return
      halve(record.concurrency, now)
      const usable = usableConnections(record.concurrency, now)
      const isWaiting = noteFailure(record.backOff, { now, reason, allowed: path.limits.failures, usable })
      if (!isWaiting) return keeper.saveLater(record)
      keeper.saveSoon(record)
      parts.wakeAt(record.backOff.until)
      const { until, step, failures } = record.backOff
      const { ip, route, isp } = path
      parts.logger.warn({ ip, route, isp, reason, until, step, failures }, 'path left alone')
    },
    heedAnswer(record: PathRecord): void {
      const wasProbing = record.backOff.step > 0
      if (!noteAnswer(record.backOff)) return
      keeper.saveSoon(record)
      if (wasProbing) parts.onOpen()
    },
  }
}
