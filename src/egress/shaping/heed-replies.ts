/**
 * What a refusal means for its path and its lane: reply rules, blocks that no rule knows, probes (egress/README.md
 * "Reply rules" and "Suspension ladder").
 *
 * While a path is suspended, what was under way before brings no news of it. Never throws.
 */
import { HOUR } from '../../base/clock.ts'
import type { ReplyRuleSettings, Threshold } from '../../config/settings/provider-settings.ts'
import type { BounceCategory } from '../../mail/reply/bounce-category.ts'
import type { SmtpReply, SmtpStage } from '../../mail/reply/smtp-reply.ts'
import { isHalfOpen, isSuspended } from './ladder.ts'
import { nextDoublingAt } from './path-limits.ts'
import type { PathRecord } from './records.ts'
import { countMatch, createReplyRules, type MatchRules } from './reply-rules.ts'
import type { ShapingParts } from './state-keeper.ts'
import type { Lane, ShapedPath } from './shaping.ts'
import type { Suspensions } from './suspensions.ts'

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
    parts.logger.warn({ ip, route, isp, rule: id, reply: cause, until: limit.until }, 'path limited')
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

/** Compiled once for each configuration. */
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
