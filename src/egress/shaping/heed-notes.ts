/**
 * What a reply or the end of a connection means for its path: concurrency, back-off, reply rules, suspensions.
 *
 * | what came                                     | concurrency | back-off | rules | half-open                      |
 * | --------------------------------------------- | ----------- | -------- | ----- | ------------------------------ |
 * | 2xx to the dot                                | may grow    | ends     |       | passes                         |
 * | 4xx, 5xx to MAIL … dot                        |             | ends     | yes   | block: again; address: passes  |
 * | 421 there, or between messages                | halves      | counts   | yes   | block: again                   |
 * | no connection, banner or EHLO refused         | halves      | counts   | yes   | block: again                   |
 * | connection dropped in the dialogue            | halves      |          |       |                                |
 *
 * While a path is suspended, what was under way before brings no news of it. Never throws. egress/README.md
 * "Concurrency" to 8.5, 9.
 */
import { HOUR } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { ReplyRuleSettings, Threshold } from '../../config/settings/provider-settings.ts'
import type { BounceCategory } from '../../mail/reply/bounce-category.ts'
import type { SmtpReply, SmtpStage } from '../../mail/reply/smtp-reply.ts'
import type { ReplyRules } from './reply-rules.ts'
import type { ConnectionNote, Lane, ShapedPath, ShapingSignals, TryNote } from './shaping.ts'
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
import type { IpReach } from './ip-reach.ts'
import { isHalfOpen, isSuspended } from './ladder.ts'
import { limitsNow } from './limits-now.ts'
import { countMatch } from './match-counts.ts'
import type { PathRecord, ShapingRecord, ShapingRecords } from './records.ts'
import { nextDoublingAt } from './reply-limits.ts'
import type { Suspensions } from './suspensions.ts'

export interface HeedNotes {
  heedTry(path: ShapedPath, lane: Lane, note: TryNote): void
  heedConnection(path: ShapedPath, note: ConnectionNote): void
}

export interface HeedNotesOptions {
  now: () => number
  logger: Logger
  records: ShapingRecords
  rules: () => ReplyRules
  suspensions: Suspensions
  reach: IpReach
  signals: ShapingSignals
  onChange: (record: ShapingRecord) => void
  /** Something small changed: it may be stored later. */
  onTouch: (record: ShapingRecord) => void
  wakeAt: (time: number) => void
  onOpen: () => void
}

interface Refusal {
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
const IP_CATEGORIES: ReadonlySet<BounceCategory | null> = new Set<BounceCategory>(['ip_block', 'no_ptr'])
const DOMAIN_CATEGORIES: ReadonlySet<BounceCategory | null> = new Set<BounceCategory>(['domain_block', 'auth_failed'])
/** The receiver looked at the address, so it took us seriously. */
const ADDRESS_CATEGORIES: ReadonlySet<BounceCategory | null> = new Set<BounceCategory>([
  'invalid_recipient',
  'bad_domain',
  'inactive',
  'moved',
  'bad_address_syntax',
  'mailbox_full',
  'too_large',
  'recipient_refused',
])
const CLOSING = 421
/** A 421 between two messages stands where MAIL would have. */
const STAGE_OF_CLOSING = 'mail'

export function createHeedNotes(options: HeedNotesOptions): HeedNotes {
  const { logger, records, rules, suspensions, reach, signals, onChange, onTouch, wakeAt, onOpen } = options

  function heedTrouble(path: ShapedPath, record: PathRecord, reason: string): void {
    const now = options.now()
    if (isSuspended(record.ladder, now)) return
    halve(record.concurrency, now)
    const usable = usableConnections(record.concurrency, now)
    const isWaiting = noteFailure(record.backOff, { now, reason, allowed: path.limits.failures, usable })
    if (!isWaiting) return onTouch(record)
    onChange(record)
    wakeAt(record.backOff.until)
    const { until, step, failures } = record.backOff
    logger.warn({ ip: path.ip, route: path.route, isp: path.isp, reason, until, step, failures }, 'path left alone')
  }

  function heedAnswer(record: PathRecord): void {
    const wasProbing = record.backOff.step > 0
    if (!noteAnswer(record.backOff)) return
    onChange(record)
    if (wasProbing) onOpen()
  }

  function heedRefusal(path: ShapedPath, record: PathRecord, refusal: Refusal): void {
    const { reply, stage, category, lane } = refusal
    const matches = rules().match(reply, stage, path.provider)
    if (category === 'ip_block') {
      signals.onBlock({ ip: path.ip, isp: path.isp, reason: reply.text, isRule: false })
    }
    if (!isSuspended(record.ladder, options.now())) heedForPath(path, record, refusal, matches)
    if (lane !== null) heedForLane(path, refusal, lane, matches)
  }

  function heedForPath(path: ShapedPath, record: PathRecord, refusal: Refusal, matches: ReplyRuleSettings[]): void {
    const now = options.now()
    const { reply, category } = refusal
    const cause = reply.text
    const isProbe = isHalfOpen(record.ladder, now)
    const isProbeOfIp = isHalfOpenIp(path.ip, now)
    const rule = matches.find(isBlocking)
    const isIpBlock = rule?.block === true || IP_CATEGORIES.has(category)
    if (isIpBlock ? isProbe || isProbeOfIp : isProbe && rule !== undefined) {
      const duration = rule?.do === 'suspend' ? rule.for : null
      const isBlock = isIpBlock || record.ladder.suspension?.isBlock === true
      return suspensions.suspendPath(path, record, { now, duration, rule: rule?.id ?? null, cause, isBlock })
    }
    if ((isProbe || isProbeOfIp) && ADDRESS_CATEGORIES.has(category)) suspensions.notePathPassed(path, record, now)
    countForPath(path, record, refusal, matches)
  }

  function countForPath(path: ShapedPath, record: PathRecord, refusal: Refusal, matches: ReplyRuleSettings[]): void {
    const now = options.now()
    const {
      reply: { text: cause },
      category,
    } = refusal
    for (const rule of matches) {
      if (rule.do === 'suspend_lane') continue
      onTouch(record)
      if (countMatch(record.counts, rule.id, rule.when, now)) fire(path, record, rule, cause)
    }
    if (matches.length > 0 || category !== 'ip_block') return
    onTouch(record)
    if (!countMatch(record.counts, IP_BLOCKS, UNRULED, now)) return
    suspensions.suspendPath(path, record, { now, duration: null, rule: null, cause, isBlock: true })
  }

  function isHalfOpenIp(ip: string, now: number): boolean {
    const record = records.ips.get(ip)
    return record !== undefined && isHalfOpen(record.ladder, now)
  }

  function fire(path: ShapedPath, record: PathRecord, rule: ReplyRuleSettings, cause: string): void {
    const now = options.now()
    if (rule.block) {
      signals.onBlock({ ip: path.ip, isp: path.isp, reason: `${rule.id}: ${cause}`, isRule: true })
    }
    if (rule.do === 'suspend') {
      const block = { now, duration: rule.for, rule: rule.id, cause, isBlock: rule.block }
      return suspensions.suspendPath(path, record, block)
    }
    const { id, rate, connections, messages_per_connection: messagesPerConnection } = rule
    const limit = { rule: id, cause, since: now, until: now + rule.for, rate, connections, messagesPerConnection }
    record.replyLimits.set(id, limit)
    onChange(record)
    wakeAt(nextDoublingAt(limit, now))
    const { ip, route, isp } = path
    logger.warn({ ip, route, isp, rule: id, reply: cause, until: limit.until }, 'path limited')
  }

  /** Rules that suspend a sending domain count for each of them: one tenant does not use up another's patience. */
  function heedForLane(path: ShapedPath, refusal: Refusal, lane: Lane, matches: ReplyRuleSettings[]): void {
    const now = options.now()
    const { reply, category } = refusal
    const [rule] = matches.filter((match) => match.do === 'suspend_lane')
    if (rule === undefined && !DOMAIN_CATEGORIES.has(category)) {
      const known = records.findLane(path, lane)
      if (known !== undefined && ADDRESS_CATEGORIES.has(category)) suspensions.noteLanePassed(known, now)
      return
    }
    const record = records.laneFor(path, lane)
    if (isSuspended(record.ladder, now)) return
    onTouch(record)
    const isEnough =
      isHalfOpen(record.ladder, now) || countMatch(record.counts, rule?.id ?? DOMAIN_BLOCKS, rule?.when ?? UNRULED, now)
    if (!isEnough) return
    const facts = { now, duration: rule?.for ?? null, rule: rule?.id ?? null, cause: reply.text, isBlock: false }
    suspensions.suspendLane(record, facts)
  }

  /** Its message may have been the one that the IP was tried with. */
  function endProbeOfIp({ ip, route }: ShapedPath): void {
    const record = records.ips.get(ip)
    if (record?.probe?.route !== route) return
    record.probe = null
    onOpen()
  }

  function heedFailure(path: ShapedPath, record: PathRecord, note: ConnectionNote & { kind: 'failed' }): void {
    const { stage, reply, reason, wasRequiredTls } = note
    // Where plain text is allowed, it goes on without TLS.
    if (stage === 'starttls' && !wasRequiredTls) return
    heedTrouble(path, record, reply?.text ?? reason)
    if (reply !== null) heedRefusal(path, record, { reply, stage, category: null, lane: null })
    if (stage !== 'connect') return
    const unreachable = reach.noteFailed(path.ip, path.route, options.now())
    if (unreachable !== undefined) signals.onIpUnreachable(path.ip, unreachable)
  }

  return {
    heedTry(path, lane, note) {
      const now = options.now()
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
      }
      endProbeOfIp(path)
    },
    heedConnection(path, note) {
      const now = options.now()
      const record = records.pathFor(path, now)
      const { concurrency } = record
      switch (note.kind) {
        case 'opened':
          noteOpened(concurrency, now, limitsNow(path, record, now).connections)
          return reach.noteOpened(path.ip, path.route, now)
        case 'ended-well':
          noteEndedWell(concurrency, now, limitsNow(path, record, now).connections, note.delivered)
          return onTouch(record)
        case 'failed':
          noteTraffic(concurrency, now)
          return heedFailure(path, record, note)
        case 'dropped':
          noteEnded(concurrency, now)
          halve(concurrency, now)
          return onTouch(record)
        default:
          noteEnded(concurrency, now)
          heedTrouble(path, record, note.reply.text)
          heedRefusal(path, record, { reply: note.reply, stage: STAGE_OF_CLOSING, category: null, lane: null })
      }
    },
  }
}

function isBlocking(rule: ReplyRuleSettings): boolean {
  return rule.do === 'suspend' || rule.block
}
