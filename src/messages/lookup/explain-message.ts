/**
 * Why a message is where it is, in plain words (http/README.md "Explain", messages/README.md "Explain"). A part that is
 * not known is left out; nothing here changes anything. Throws ServiceError `not_found`.
 */
import type { ExplanationJson } from '../../api/message.ts'
import { HOUR, type Clock, secondsOrNull } from '../../base/clock.ts'
import type { ClassifyReply } from '../../mail/reply/classify-reply.ts'
import type { Reach } from '../../mail/reach.ts'
import { readSmtpReply } from '../../mail/reply/smtp-reply.ts'
import type { WaitReason } from '../../mail/waiting-mail.ts'
import type { Whereabouts } from '../../mail/whereabouts.ts'
import type { DomainView } from '../../senders/domain-view.ts'
import type { Domains } from '../../senders/domains.ts'
import { FOREIGN_KEY, rotationHint } from '../../senders/records/dkim-keys.ts'
import type { MessageView } from '../../store/records/lookup-records.ts'
import type { Store } from '../../store/store.ts'
import { categoryWords } from './category-words.ts'
import { explainChecks } from './explain-checks.ts'
import { explainSending } from './explain-sending.ts'
import { summaryOf } from './explain-state.ts'
import { timeUntil } from './time-words.ts'
import { requireMessage } from './visible-messages.ts'

type ExplainMessage = (id: string, reach: Reach) => Promise<ExplanationJson>

export interface ExplainOptions {
  store: Store
  clock: Clock
  domains: Pick<Domains, 'find'>
  classify: ClassifyReply
  /** Undefined: delivery knows of nothing that holds it. */
  whyWaiting: (message: MessageView) => WaitReason | undefined
  /** Why no delivery begins, as a clause; null: they do. Left out: nothing holds all mail. */
  deliverProblem?: () => string | null
  /** Of a message that is `sending`. Undefined: nobody has it. */
  whereIs: (message: Pick<MessageView, 'id' | 'leaseEpoch'>) => Promise<Whereabouts | undefined>
  /** The longest that delivery waits at any one stage. */
  longestStageMilliseconds: number
}

const NOTHING_TO_DO = 'Nothing to do.'
const SILENT_DNS =
  'If mail to other domains waits for the DNS too, look at the DNS servers of this machine: sternpost doctor names'
const NO_IP_SENDS = 'No time ends this: start, resume or enable an IP of its pool; sternpost ip list'

export function createExplainMessage(options: ExplainOptions): ExplainMessage {
  const { store, clock, domains, classify, whyWaiting, longestStageMilliseconds } = options

  /** Whatever else it waits for. */
  function stoppedReason({ state }: MessageView): Held | undefined {
    const problem = state === 'queued' || state === 'deferred' ? (options.deliverProblem?.() ?? null) : null
    if (problem === null) return undefined
    return { summary: `It waits: no delivery begins, for ${problem}.`, advice: ['sternpost doctor disk database'] }
  }

  /** What nobody has may have come to its end between the two questions: then the message is read once more. */
  async function look(id: string, reach: Reach): Promise<{ message: MessageView; where: Whereabouts | undefined }> {
    const message = await requireMessage(store, id, reach, clock.now())
    const where = message.state === 'sending' ? await options.whereIs(message) : undefined
    if (message.state !== 'sending' || where !== undefined) return { message, where }
    return { message: await requireMessage(store, id, reach, clock.now()), where }
  }

  return async (id, reach) => {
    const { message, where } = await look(id, reach)
    const now = clock.now()
    const { state } = message
    const [domain, similar] = await Promise.all([
      domains.find(message.domain),
      similarOf({ message, reach }, store, now),
    ])
    const cause = causeOf(message, classify)
    const category = cause?.category ?? null
    const waiting = waitingReason(message, whyWaiting, now)
    const advice = cause === null ? null : (categoryWords(cause.category)?.advice ?? null)
    const isWithoutIp = waiting?.waitingFor === 'ip_paused' && waiting.untilMilliseconds === null
    const held = isOver(message, now) ? OVER : (stoppedReason(message) ?? unsignedReason(message, domain))
    const told =
      state === 'sending'
        ? explainSending({ message, where, longestStageMilliseconds, now })
        : {
            summary: held?.summary ?? summaryOf(state, { message, category, waiting: waiting?.text, now }),
            check: null,
            advice: held?.advice ?? null,
          }
    const domainChecks = domain === null ? [] : explainChecks(domain, message.ip)
    return {
      message_id: message.id,
      state,
      summary: told.summary,
      waiting_for: waiting?.waitingFor ?? null,
      reply: message.attempts.at(-1)?.reply ?? null,
      category,
      rule: cause?.rule ?? null,
      next_attempt_at: held === OVER ? null : secondsOrNull(nextAttempt(message, waiting)),
      checks: told.check === null ? domainChecks : [told.check, ...domainChecks],
      similar,
      advice: told.advice ?? [
        isWithoutIp ? NO_IP_SENDS : (advice ?? (hasNoHosts(message) ? SILENT_DNS : NOTHING_TO_DO)),
      ],
    }
  }
}

interface Cause {
  category: string
  rule: string | null
}

/** null: nothing was refused. */
function causeOf(message: MessageView, classify: ClassifyReply): Cause | null {
  const last = message.attempts.at(-1)
  const reply = last === undefined || message.state === 'delivered' ? undefined : readSmtpReply(last.reply)
  const isRefusal = reply !== undefined && reply.code >= 400
  const judged = isRefusal && last !== undefined ? classify(reply, last.stage, message.isp) : null
  if (message.bounce === null) return judged
  // What was recorded holds: a rule may have been changed since.
  const { category } = message.bounce
  return { category, rule: judged?.category === category ? judged.rule : null }
}

/** The DNS named none so far. */
function hasNoHosts({ state, attempts }: MessageView): boolean {
  const last = attempts.at(-1)
  return state === 'deferred' && last?.result === 'path-failed' && last.ip === null
}

interface Held {
  summary: string
  advice: string[]
}

/** operations/README.md "The jobs": nothing expires while the clock is unsteady, and nothing is claimed either. */
const OVER: Held = {
  summary:
    'Its lifetime is over: it is not tried any more, and ends as expired within seconds; behind a jump of the clock of ' +
    'this machine within ten minutes.',
  advice: ['Look at the clock: sternpost doctor clock'],
}

function isOver({ state, expiresAt }: MessageView, now: number): boolean {
  return (state === 'queued' || state === 'deferred') && expiresAt <= now
}

/** Its domain's key was sealed with another master key: it waits, whatever else holds it. */
function unsignedReason({ state }: MessageView, domain: DomainView | null): Held | undefined {
  if (state !== 'queued' && state !== 'deferred') return undefined
  const active = domain?.records.find(({ role, error }) => role === undefined && error === FOREIGN_KEY)
  if (active === undefined || domain === null) return undefined
  return { summary: `It waits: ${FOREIGN_KEY}.`, advice: [rotationHint(domain.domain)] }
}

/** Due is not the same as possible: what holds it may end later. */
function nextAttempt({ nextAttemptAt }: MessageView, waiting: WaitReason | undefined): number | null {
  if (nextAttemptAt === null) return null
  return Math.max(nextAttemptAt, waiting?.untilMilliseconds ?? 0)
}

/** Undefined for what does not wait. */
function waitingReason(
  message: MessageView,
  whyWaiting: ExplainOptions['whyWaiting'],
  now: number,
): WaitReason | undefined {
  const { state, sendAt, nextAttemptAt } = message
  if (state === 'scheduled') {
    return { waitingFor: 'send_at', untilMilliseconds: sendAt, text: `It is sent ${timeUntil(sendAt ?? now, now)}.` }
  }
  if ((state !== 'queued' && state !== 'deferred') || isOver(message, now)) return undefined
  const known = whyWaiting(message)
  if (known !== undefined || state === 'queued') return known
  const next = nextAttemptAt ?? now
  return { waitingFor: 'retry_delay', untilMilliseconds: next, text: `The next attempt is ${timeUntil(next, now)}.` }
}

/** Of the mail of everybody: null for who reaches some domains alone, or the test side. */
async function similarOf(
  { message: { isp, ip }, reach }: { message: MessageView; reach: Reach },
  store: Pick<Store, 'roadSummary'>,
  now: number,
): Promise<ExplanationJson['similar']> {
  if (isp === null || reach.domains.length > 0 || reach.isTest === true) return null
  const { attempts, deferred } = await store.roadSummary(isp, ip, now - HOUR)
  return { isp, last_hour: { attempts, deferred } }
}
