/**
 * What follows from one try: delivered, later, or the end of the message.
 *
 * | what happened                          | outcome                                                             |
 * | -------------------------------------- | ------------------------------------------------------------------- |
 * | 2xx to the dot                         | delivered, whatever its text says                                   |
 * | 4xx to MAIL, RCPT, DATA, dot           | deferred by the schedule; greylisting and the host's wish come first |
 * | 5xx there                              | by its category: the end, or later (blocks are not its fault)       |
 * | 421 there                              | deferred too; what it means for the path: `egress/shaping/heed-notes.ts` |
 * | 5xx that is a block, to a probe        | deferred: it was sent to find out                                    |
 * | connection lost before the dot         | deferred, safe to resend                                            |
 * | no reply to the dot                    | ambiguous once; the second time the end, with the doubt stated      |
 * | anything before MAIL                   | path-failed: never a bounce, never an attempt                       |
 * | no further try fits into the lifetime  | expired; where it may have arrived before, that is stated           |
 *
 * A simulated recipient answers as a real one does, but in seconds: 5xx is the end, everything else waits 1 to 5 s
 * (http/README.md "Simulated recipients").
 *
 * Pure. delivery/README.md "Stages" and "Retries", mail/README.md "Categories" and "Blocks"; http/README.md "States of
 * a message"; probes: egress/README.md "Suspension ladder".
 */
import { MINUTE } from '../../base/clock.ts'
import { unreachable } from '../../base/errors.ts'
import { BOUNCE_CATEGORIES, type BounceCategory } from '../../mail/reply/bounce-category.ts'
import { bounceFor, type ClassifyReply, type Suppression } from '../../mail/reply/classify-reply.ts'
import type { DeliveryOutcome } from '../../mail/reply/delivery-outcome.ts'
import { expiryBounce } from '../../mail/expiry-bounce.ts'
import { isSimulated } from '../../mail/simulator.ts'
import type { SmtpReply, SmtpStage } from '../../mail/reply/smtp-reply.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import { nextTryAt, PATH_WAITS, scheduledWait, simulatedWait, wishedWait } from './retry-schedule.ts'
import type { TryEnd } from '../protocol/try-result.ts'

export type JudgedMessage = Pick<
  ClaimedMessage,
  | 'id'
  | 'attempts'
  | 'acceptedAt'
  | 'expiresAt'
  | 'pathFailures'
  | 'ambiguousCount'
  | 'isPossibleDuplicate'
  | 'recipientDomain'
>

type JudgeSettings = { retry: number[]; retry_jitter: number; greylist_retry: number[]; uncertain_retry: number }

export interface JudgeRequest {
  end: Exclude<TryEnd, { kind: 'returned' }>
  message: JudgedMessage
  now: number
  provider: string | null
  /** How long the path itself waits, beside the message's own back-off. */
  pathWait: number
  /** A suspended path or sending domain was tried out with it. */
  isProbe: boolean
}

export interface Judgement {
  outcome: DeliveryOutcome
  stage: SmtpStage
  /** The reply, or the reason in our words. */
  reply: string
  /** Enhanced code, or the three digits, for the log. */
  code: string | null
  category: BounceCategory | null
  /** Id of the bounce rule that decided. */
  rule: string | null
  /** What a bounce means for the address. */
  suppress: Suppression
}

export type JudgeReply = (request: JudgeRequest) => Judgement

/** Another IP should not follow a block at once (egress/README.md "Keep or rotate"). */
const SHORTEST_WAIT_AFTER_BLOCK = 5 * MINUTE
/** Attempts at which a vague "later" counts as greylisting (delivery/README.md "Greylisting"). */
const GREYLIST_ATTEMPTS = 3
// Wordings of greylisting servers that do not name it.
const GREYLIST_TEXT = /gr[ae]y.?list|try again later|temporarily deferred.*(?:first|new)|please retry/i

export function createJudgeReply(settings: JudgeSettings, classify: ClassifyReply): JudgeReply {
  return (request) => {
    const { end, message } = request
    switch (end.kind) {
      case 'accepted':
        return { ...NO_CLASS, outcome: { kind: 'delivered' }, stage: 'dot', ...textOf(end.reply) }
      case 'refused':
        return judgeRefusal(request, { stage: end.stage, reply: end.reply })
      case 'lost': {
        const outcome = defer(request, waitInTurn(message), end.reason)
        return { ...lostAt(end.stage, end.reason), outcome, category: 'connection_lost' }
      }
      case 'unanswered':
        return { ...lostAt('dot', end.reason), outcome: doubt(request, end.reason), category: 'ambiguous' }
      case 'unacceptable':
        return judgeUnacceptable(end)
      case 'path-failed':
        return { ...NO_CLASS, outcome: waitForPath(request), stage: end.stage, reply: end.reason, code: end.code }
      default:
        return unreachable(end)
    }
  }

  /** Without room for another try it waits for its end, which the store brings (delivery/README.md "Expiry"). */
  function waitForPath({ message, now, pathWait }: JudgeRequest): DeliveryOutcome {
    const ownWait = scheduledWait(PATH_WAITS, message.pathFailures + 1, message.id, settings.retry_jitter)
    const retryAt = nextTryAt(now, Math.max(ownWait, pathWait), message.expiresAt) ?? message.expiresAt
    return { kind: 'path-failed', retryAt }
  }

  function judgeRefusal(request: JudgeRequest, { stage, reply }: { stage: SmtpStage; reply: SmtpReply }): Judgement {
    const { message, provider } = request
    const found = classify(reply, stage, provider)
    const category = isGreylisting(found.category, reply, message.attempts + 1, stage) ? 'greylist' : found.category
    const facts = { stage, ...textOf(reply), category, rule: found.rule, suppress: found.suppress }
    const isExcused = request.isProbe && BOUNCE_CATEGORIES[category].type === 'block'
    const isEnd = isSimulated(message.recipientDomain) || (!isExcused && endsNow(category, message.attempts))
    if (reply.code >= 500 && isEnd) {
      return { ...facts, outcome: { kind: 'bounced', bounce: bounceFor(category, reply, reply.text) } }
    }
    return { ...facts, outcome: defer(request, waitFor(category, reply, message), reply.text) }
  }

  /** The schedule's wait after this try. */
  function waitInTurn({ id, attempts, recipientDomain }: JudgedMessage): number {
    if (isSimulated(recipientDomain)) return simulatedWait(attempts + 1, id)
    return scheduledWait(settings.retry, attempts + 1, id, settings.retry_jitter)
  }

  function waitFor(category: BounceCategory, reply: SmtpReply, message: JudgedMessage): number {
    if (isSimulated(message.recipientDomain)) return waitInTurn(message)
    const { onPermanent, changesIp } = BOUNCE_CATEGORIES[category]
    const attempt = message.attempts + 1
    const wished = wishedWait(reply.text)
    if (wished !== null) return wished
    // Not moved by chance: a server with a window of five minutes must not be asked after four.
    if (category === 'greylist' && attempt <= settings.greylist_retry.length) {
      return scheduledWait(settings.greylist_retry, attempt, message.id, 0)
    }
    const over = reply.code >= 500 && typeof onPermanent === 'object' ? onPermanent.overMilliseconds : null
    if (over !== null && typeof onPermanent === 'object') return over / onPermanent.retries
    const wait = waitInTurn(message)
    return changesIp ? Math.max(wait, SHORTEST_WAIT_AFTER_BLOCK) : wait
  }

  /** Tried once more; after the second time nobody can tell whether it arrived (RFC 1047). */
  function doubt({ message, now }: JudgeRequest, reason: string): DeliveryOutcome {
    const wait = isSimulated(message.recipientDomain) ? waitInTurn(message) : settings.uncertain_retry
    const retryAt = message.ambiguousCount > 0 ? null : nextTryAt(now, wait, message.expiresAt)
    if (retryAt !== null) return { kind: 'ambiguous', retryAt }
    return { kind: 'bounced', bounce: bounceFor('ambiguous', null, `${DOUBT} (${reason})`) }
  }
}

const NO_CLASS = { category: null, rule: null, suppress: 'never' as const }

const lostAt = (stage: SmtpStage, reply: string) => ({ ...NO_CLASS, stage, reply, code: '4.4.2' })

const DOUBT = 'the whole message was sent, but no answer came back: it may have been delivered'

function defer({ message, now }: JudgeRequest, wait: number, lastAnswer: string): DeliveryOutcome {
  const retryAt = nextTryAt(now, wait, message.expiresAt)
  if (retryAt !== null) return { kind: 'deferred', retryAt }
  const { acceptedAt, expiresAt, isPossibleDuplicate } = message
  const bounce = expiryBounce({ lifetimeMilliseconds: expiresAt - acceptedAt, lastAnswer, isPossibleDuplicate })
  return { kind: 'expired', bounce }
}

function endsNow(category: BounceCategory, attemptsBefore: number): boolean {
  const { onPermanent } = BOUNCE_CATEGORIES[category]
  if (onPermanent === 'end') return true
  return onPermanent !== 'schedule' && attemptsBefore >= onPermanent.retries
}

/** delivery/README.md "Greylisting": early, temporary, in the envelope, and not a block. */
function isGreylisting(category: BounceCategory, reply: SmtpReply, attempt: number, stage: SmtpStage): boolean {
  const isVague = category === 'temporary' || category === 'policy' || category === 'recipient_refused'
  const isEarly = attempt <= GREYLIST_ATTEMPTS && stage !== 'dot'
  const isCode = reply.code === 450 || reply.code === 451 || reply.enhancedCode === '4.7.1'
  return isVague && isEarly && isCode && GREYLIST_TEXT.test(reply.text)
}

/** Known before MAIL, by what the host announced: no other try can change it. */
function judgeUnacceptable({ cause, reason }: Extract<TryEnd, { kind: 'unacceptable' }>): Judgement {
  const category = cause === 'too_large' ? 'too_large' : 'policy'
  const made = bounceFor(category, null, reason)
  // X.6.7 of RFC 6531: non-ASCII addresses not permitted for that sender or recipient.
  const bounce = cause === 'too_large' ? made : { ...made, code: '5.6.7' }
  const facts = { stage: 'mail' as const, reply: reason, code: bounce.code }
  return { ...NO_CLASS, ...facts, outcome: { kind: 'bounced', bounce }, category }
}

function textOf(reply: SmtpReply): { reply: string; code: string } {
  return { reply: reply.text, code: reply.enhancedCode ?? String(reply.code) }
}
