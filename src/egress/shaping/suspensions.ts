/**
 * Who is suspended after a block, and who passes a probe: the steps 3 (path), 4 (IP) and 5 (lane) of egress/README.md
 * "Suspension ladder". Never throws.
 */
import { HOUR } from '../../base/clock.ts'
import {
  IP_STEPS,
  isHalfOpen,
  LANE_STEPS,
  notePassed,
  PATH_STEPS,
  suspend,
  type Block,
  type Suspension,
} from './ladder.ts'
import type { LaneRecord, PathRecord, ShapedIpRecord, ShapingRecord } from './records.ts'
import type { ShapingParts } from './state-keeper.ts'
import type { ShapedPath } from './shaping.ts'

export type Suspensions = ReturnType<typeof createSuspensions>

/** A block, whose steps follow from what it suspends. */
type BlockFacts = Omit<Block, 'steps'>

const PROVIDERS_THAT_BLOCK = 3
const PROVIDERS_WITHIN = HOUR

export function createSuspensions({ records, logger, keeper, signals, wakeAt, onOpen }: ShapingParts) {
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

  /** A message passed while half-open; `onOpened`: it was the last that was asked for. */
  function noteProbe(record: ShapingRecord, onOpened: () => void): void {
    if (notePassed(record.ladder)) onOpened()
    keeper.saveSoon(record)
    onOpen()
  }

  return {
    suspendPath(path: ShapedPath, record: PathRecord, block: BlockFacts): void {
      const suspension = suspend(record.ladder, { ...block, steps: PATH_STEPS })
      if (suspension === null) return
      record.concurrency.c = 1
      note(record, suspension, { ip: path.ip, route: path.route, isp: path.isp })
      if (block.isBlock) noteBlockOfIp(path, block.cause, block.now)
    },
    suspendLane(record: LaneRecord, block: BlockFacts): void {
      const suspension = suspend(record.ladder, { ...block, steps: LANE_STEPS })
      if (suspension === null) return
      const { pool, route, isp, domain } = record
      note(record, suspension, { pool, route, isp, domain })
      signals.onLaneSuspension({ pool, route, isp, domain, until: suspension.until, reason: block.cause })
    },
    /** A message went through, or was refused for a reason of its address. */
    notePathPassed({ ip, route, isp }: ShapedPath, record: PathRecord, now: number): void {
      const ofIp = records.ips.get(ip)
      if (ofIp !== undefined && isHalfOpen(ofIp.ladder, now)) {
        noteProbe(ofIp, () => logger.info({ ip }, 'ip open again'))
      }
      if (!isHalfOpen(record.ladder, now)) return
      noteProbe(record, () => {
        record.concurrency.c = 1
        logger.info({ ip, route, isp }, 'path open again')
      })
    },
    noteLanePassed(record: LaneRecord, now: number): void {
      if (!isHalfOpen(record.ladder, now)) return
      const { pool, route, domain } = record
      noteProbe(record, () => logger.info({ pool, route, domain }, 'lane open again'))
    },
  }
}

/** Suspensions of its paths by a block that count for the IP still. */
export function recentBlocks({ blocks }: ShapedIpRecord, now: number): ShapedIpRecord['blocks'] {
  return blocks.filter(({ at }) => at > now - PROVIDERS_WITHIN)
}
