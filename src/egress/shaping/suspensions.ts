/**
 * Who is suspended after a block, and who passes a probe: the steps 3 (path), 4 (IP) and 5 (lane) of egress/README.md
 * "Suspension ladder". Never throws.
 */
import { HOUR } from '../../base/clock.ts'
import {
  IP_STEPS,
  isHalfOpen,
  isSuspended,
  LANE_STEPS,
  notePassed,
  PATH_STEPS,
  suspend,
  type Block,
  type Suspension,
} from './ladder.ts'
import type { LaneRecord, PathRecord, ShapedIpRecord, ShapingRecord } from './records.ts'
import type { ShapingParts } from './shaping-parts.ts'
import type { ShapedPath } from './shaping.ts'

export interface Suspensions {
  suspendPath(path: ShapedPath, record: PathRecord, block: BlockFacts): void
  suspendLane(record: LaneRecord, block: BlockFacts): void
  /** A message went through, or was refused for a reason of its address. */
  notePathPassed(path: ShapedPath, record: PathRecord, now: number): void
  noteLanePassed(record: LaneRecord, now: number): void
}

/** A block, whose steps follow from what it suspends. */
type BlockFacts = Omit<Block, 'steps'>

const PROVIDERS_THAT_BLOCK = 3
const PROVIDERS_WITHIN = HOUR

export function createSuspensions({ records, logger, keeper, signals, wakeAt, onOpen }: ShapingParts): Suspensions {
  function note(record: ShapingRecord, suspension: Suspension, facts: Record<string, unknown>): void {
    keeper.saveSoon(record)
    wakeAt(suspension.until)
    const { rule, cause, until } = suspension
    logger.warn({ ...facts, rule, reply: cause, until, step: record.ladder.step }, `${record.kind} suspended`)
  }

  /** Step 4: several providers agree. */
  function noteBlockOfIp(path: ShapedPath, cause: string, now: number): void {
    const record = records.ipFor(path.ip)
    const provider = path.provider ?? path.isp
    const others = recentBlocks(record, now).filter((block) => block.provider !== provider)
    record.blocks = [...others, { provider, at: now }]
    const isBack = isHalfOpen(record.ladder, now)
    if (record.blocks.length < PROVIDERS_THAT_BLOCK && !isBack) return keeper.saveSoon(record)
    const names = record.blocks.map((block) => block.provider).join(', ')
    const reason = isBack ? `blocked again: ${cause}` : `blocked by ${names} within 1 h: ${cause}`
    const block = { now, steps: IP_STEPS, duration: null, rule: null, cause: reason, isBlock: true }
    const suspension = suspend(record.ladder, block)
    if (suspension === null) return keeper.saveSoon(record)
    record.blocks = []
    record.probe = null
    note(record, suspension, { ip: path.ip })
    signals.onIpSuspension(path.ip, suspension.until, reason)
  }

  return {
    suspendPath(path, record, block) {
      const suspension = suspend(record.ladder, { ...block, steps: PATH_STEPS })
      if (suspension === null) return
      record.concurrency.c = 1
      note(record, suspension, { ip: path.ip, route: path.route, isp: path.isp })
      if (block.isBlock) noteBlockOfIp(path, block.cause, block.now)
    },
    suspendLane(record, block) {
      const suspension = suspend(record.ladder, { ...block, steps: LANE_STEPS })
      if (suspension === null) return
      const { pool, route, isp, domain } = record
      note(record, suspension, { pool, route, isp, domain })
      signals.onLaneSuspension({ pool, route, isp, domain, until: suspension.until, reason: block.cause })
    },
    notePathPassed(path, record, now) {
      const ip = records.ips.get(path.ip)
      if (ip !== undefined) noteIpPassed(ip, now)
      if (!isHalfOpen(record.ladder, now)) return
      if (notePassed(record.ladder)) {
        record.concurrency.c = 1
        logger.info({ ip: path.ip, route: path.route, isp: path.isp }, 'path open again')
      }
      keeper.saveSoon(record)
      onOpen()
    },
    noteLanePassed(record, now) {
      if (!isHalfOpen(record.ladder, now)) return
      const { pool, route, domain } = record
      if (notePassed(record.ladder)) logger.info({ pool, route, domain }, 'lane open again')
      keeper.saveSoon(record)
      onOpen()
    },
  }

  function noteIpPassed(record: ShapedIpRecord, now: number): void {
    if (record.ladder.suspension === null || isSuspended(record.ladder, now)) return
    if (notePassed(record.ladder)) logger.info({ ip: record.ip }, 'ip open again')
    keeper.saveSoon(record)
    onOpen()
  }
}

/** Suspensions of its paths by a block that count for the IP still. */
export function recentBlocks({ blocks }: ShapedIpRecord, now: number): ShapedIpRecord['blocks'] {
  return blocks.filter(({ at }) => at > now - PROVIDERS_WITHIN)
}
