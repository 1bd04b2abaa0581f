/**
 * What a refusal means for its path and its lane: reply rules, blocks that no rule knows, probes (egress/README.md
 * "Reply rules" and "Suspension ladder"). While a path is suspended, what was under way before brings no news of it.
 * Never throws.
 */
import { HOUR } from '../../base/clock.ts'
import type { ReplyRuleSettings, Threshold } from '../../config/settings/provider-settings.ts'
import type { BounceCategory } from '../../mail/reply/bounce-category.ts'
import type { SmtpReply, SmtpStage } from '../../mail/reply/smtp-reply.ts'
import { shownReply } from '../../mail/shown-recipient.ts'
import {
  isHalfOpen,
  isSuspended,
  IP_STEPS,
  LANE_STEPS,
  notePassed,
  PATH_STEPS,
  suspend,
  type Block,
  type Suspension,
} from './ladder.ts'
import { nextDoublingAt } from './path-limits.ts'
import type { PathRecord, LaneRecord, ShapedIpRecord, ShapingRecord } from './records.ts'
import { countMatch, createReplyRules, type MatchRules } from './reply-rules.ts'
import type { ShapingParts } from './state-keeper.ts'
import type { Lane, ShapedPath } from './shaping.ts'

interface PathRefusal {
  reply: SmtpReply
  stage: SmtpStage
  /** Null: of a connection, not of a message. */
  category: BounceCategory | null
  /** Null: no message was at stake. */
  lane: Lane | null
}

/** Blocks that no rule knows (egress/README.md "Suspension ladder" steps 3 and 5). */
const UNRULED: Threshold = { count: 5, within_milliseconds: HOUR }
/** Names of what is counted beside rules; no rule's id has an asterisk. */
const IP_BLOCKS = '*ip_block'
const DOMAIN_BLOCKS = '*domain_block'
type Categories = ReadonlySet<BounceCategory | null>
const IP_CATEGORIES: Categories = new Set(['ip_block', 'no_ptr'])
const DOMAIN_CATEGORIES: Categories = new Set(['domain_block', 'auth_failed'])
/** The receiver looked at the address, so it took us seriously. */
const ADDRESS_CATEGORIES: Categories = new Set([
  'invalid_recipient',
  'bad_domain',
  'inactive',
  'moved',
  'bad_address_syntax',
  'mailbox_full',
  'too_large',
  'recipient_refused',
])

export function createHeedReplies(
  parts: ShapingParts,
  suspensions: Suspensions,
): (path: ShapedPath, record: PathRecord, refusal: PathRefusal) => void {
  const { records, signals, keeper } = parts
  const rules = liveRules(parts.settings)
  const heedForLane = createHeedLane(parts, suspensions)

  return (path, record, refusal) => {
    const { reply, stage, category, lane } = refusal
    const matches = rules()(reply, stage, path.provider)
    if (category === 'ip_block') signals.onBlock({ ip: path.ip, isp: path.isp, reason: reply.text, isRule: false })
    if (!isSuspended(record.ladder, parts.now())) heedForPath(path, record, refusal, matches)
    if (lane !== null) heedForLane(path, refusal, lane, matches)
  }

  function heedForPath(path: ShapedPath, record: PathRecord, refusal: PathRefusal, matches: ReplyRuleSettings[]): void {
    const now = parts.now()
    const { reply, category } = refusal
    const isProbe = isHalfOpen(record.ladder, now)
    const ip = records.ips.get(path.ip)
    const isProbeOfIp = ip !== undefined && isHalfOpen(ip.ladder, now)
    const rule = matches.find((match) => match.do === 'suspend' || match.block)
    const isIpBlock = rule?.block === true || IP_CATEGORIES.has(category)
    if (isIpBlock ? isProbe || isProbeOfIp : isProbe && rule !== undefined) {
      const duration = rule?.do === 'suspend' ? rule.for : null
      const isBlock = isIpBlock || record.ladder.suspension?.isBlock === true
      const block = { now, duration, rule: rule?.id ?? null, cause: reply.text, isBlock }
      return suspensions.suspendPath(path, record, block)
    }
    if ((isProbe || isProbeOfIp) && ADDRESS_CATEGORIES.has(category)) suspensions.notePathPassed(path, record, now)
    for (const match of matches) {
      if (match.do === 'suspend_lane') continue
      keeper.saveLater(record)
      if (countMatch(record.counts, match.id, match.when, now)) fire(path, record, match, reply.text)
    }
    if (matches.length > 0 || category !== 'ip_block') return
    keeper.saveLater(record)
    if (!countMatch(record.counts, IP_BLOCKS, UNRULED, now)) return
    suspensions.suspendPath(path, record, { now, duration: null, rule: null, cause: reply.text, isBlock: true })
  }

  function fire(path: ShapedPath, record: PathRecord, rule: ReplyRuleSettings, cause: string): void {
    const now = parts.now()
    const { ip, route, isp } = path
    const { id, rate, connections, messages_per_connection: messagesPerConnection } = rule
    if (rule.block) signals.onBlock({ ip, isp, reason: `${id}: ${cause}`, isRule: true })
    if (rule.do === 'suspend') {
      return suspensions.suspendPath(path, record, { now, duration: rule.for, rule: id, cause, isBlock: rule.block })
    }
    const limit = { rule: id, cause, since: now, until: now + rule.for, rate, connections, messagesPerConnection }
    record.replyLimits.set(id, limit)
    keeper.saveSoon(record)
    parts.wakeAt(nextDoublingAt(limit, now))
    parts.logger.warn(
      { ip, route, isp, rule: id, reply: shownReply(cause, 'domain'), until: limit.until },
      'path limited',
    )
  }
}

type HeedLane = (path: ShapedPath, refusal: PathRefusal, lane: Lane, matches: ReplyRuleSettings[]) => void

/** Rules that suspend a sending domain count for each of them: one tenant does not use up another's patience. */
function createHeedLane({ now, records, keeper }: ShapingParts, suspensions: Suspensions): HeedLane {
  return (path, refusal, lane, matches) => {
    const at = now()
    const { reply, category } = refusal
    const rule = matches.find((match) => match.do === 'suspend_lane')
    if (rule === undefined && !DOMAIN_CATEGORIES.has(category)) {
      const known = records.findLane(path, lane)
      if (known !== undefined && ADDRESS_CATEGORIES.has(category)) suspensions.noteLanePassed(known, at)
      return
    }
    const record = records.laneFor(path, lane)
    if (isSuspended(record.ladder, at)) return
    keeper.saveLater(record)
    const [name, threshold] = rule === undefined ? [DOMAIN_BLOCKS, UNRULED] : [rule.id, rule.when]
    if (!isHalfOpen(record.ladder, at) && !countMatch(record.counts, name, threshold, at)) return
    const facts = { now: at, duration: rule?.for ?? null, rule: rule?.id ?? null, cause: reply.text, isBlock: false }
    suspensions.suspendLane(record, facts)
  }
}

function liveRules(settings: ShapingParts['settings']): () => MatchRules {
  let list: readonly ReplyRuleSettings[] = []
  let match = createReplyRules(list)
  return () => {
    const { replies } = settings().providers
    if (list !== replies) match = createReplyRules(replies)
    list = replies
    return match
  }
}

type Suspensions = ReturnType<typeof createSuspensions>

type BlockFacts = Omit<Block, 'steps'>

const PROVIDERS_THAT_BLOCK = 3
const PROVIDERS_WITHIN = HOUR

/**
 * Who is suspended after a block, and who passes a probe: the steps 3 (path), 4 (IP) and 5 (lane) of egress/README.md
 * "Suspension ladder".
 */
export function createSuspensions({ records, logger, keeper, signals, wakeAt, onOpen }: ShapingParts) {
  function note(record: ShapingRecord, suspension: Suspension, facts: Record<string, unknown>): void {
    keeper.saveSoon(record)
    wakeAt(suspension.until)
    const { rule, cause, until } = suspension
    const reply = shownReply(cause, 'domain')
    logger.warn({ ...facts, rule, reply, until, step: record.ladder.step }, `${record.kind} suspended`)
  }

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
