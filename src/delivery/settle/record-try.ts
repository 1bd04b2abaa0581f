/**
 * Everything that follows from the judgement of one try: its log line, its count, its event, the IP of the next one,
 * the suppression of the address; and the outcome for the recorder, which matters more: earlier bounces that cannot be
 * read are told to the log. egress/README.md "Keep or rotate", mail/README.md "Three decisions".
 */
import { DAY, type Clock } from '../../base/clock.ts'
import { errorText, unreachable } from '../../base/errors.ts'
import { newIdentifier } from '../../base/identifier.ts'
import type { Logger } from '../../base/logger.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { LiveConfiguration } from '../../config/live-configuration.ts'
import type { Egress } from '../../egress/egress.ts'
import type { MailboxProvider } from '../../egress/shaping/mailbox-provider.ts'
import { bouncedData, deferredData, deliveredData, type ServiceEvent } from '../../mail/event.ts'
import type { ConnectionFacts, DeliveryAttempt } from '../../mail/reply/delivery-outcome.ts'
import { withoutTokens } from '../../mail/reply/smtp-reply.ts'
import { EVERYTHING } from '../../mail/reach.ts'
import type { ShownRecipients } from '../../mail/shown-recipient.ts'
import { isSimulated } from '../../mail/simulator.ts'
import type { Grant } from '../../store/records/queue-records.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { Store } from '../../store/store.ts'
import { createAttemptLog } from './attempt-log.ts'
import { decideIp } from './ip-decision.ts'
import type { Judgement } from './judge-reply.ts'
import type { OutcomeRecorder } from './outcome-recorder.ts'

export interface RecordTryOptions {
  store: Pick<Store, 'searchMessages'>
  clock: Clock
  logger: Logger
  metrics: Metrics
  egress: Pick<Egress, 'ipsUsedBy' | 'noteRefund'>
  configuration: LiveConfiguration
  recorder: Pick<OutcomeRecorder, 'record' | 'recordLater'>
}

/** A try as far as it came. */
interface Tried {
  facts: ConnectionFacts
  at: number
  durationMilliseconds: number
  ip: string | null
  operator: MailboxProvider | null
  transcript: string | null
  refund: Grant | null
}

/** As much as a bounce says (http/README.md "Events"). */
const MOST_DESCRIPTION_CHARACTERS = 1_000

const SECOND_WITHIN = 30 * DAY
const SECOND_AFTER = DAY
/** Of an address that gets more mail than this only the last ends before the past day are looked at. */
const MOST_LOOKED_AT = 100
const ANY = {
  from: null,
  batchId: null,
  subject: null,
  tag: null,
  isp: null,
  ip: null,
  until: null,
  reach: EVERYTHING,
  after: null,
}

export function createRecordTry(options: RecordTryOptions) {
  const { clock, logger, metrics, egress, configuration, recorder } = options
  const judgeAddress = createJudgeAddress(options.store)
  const shown = (): ShownRecipients => configuration.current().server.log.recipients
  const logTry = createAttemptLog({ logger, metrics, recipients: shown })

  function counted<Settled extends { suppresses: boolean }>(settled: Settled): Settled {
    if (settled.suppresses) metrics.suppressions.inc({ reason: 'hard_bounce' })
    return settled
  }

  function notKnown(thrown: unknown): false {
    logger.error({ error: errorText(thrown) }, 'earlier bounces of an address could not be read')
    return false
  }

  return (message: ClaimedMessage, tried: Tried, judgement: Judgement): void => {
    const { facts, at, durationMilliseconds, ip, operator, transcript, refund } = tried
    const { outcome, stage, category } = judgement
    const reply = withoutTokens(judgement.reply)
    const attempt: DeliveryAttempt = { ...facts, at, durationMilliseconds, ip, result: outcome.kind, stage, reply }
    const isp = operator?.isp ?? null
    logTry({ message, attempt, judgement, provider: operator?.provider ?? null })
    if (refund !== null) egress.noteRefund(refund.ip, refund.isp)
    const now = clock.now()
    const poolIps = (): string[] => egress.ipsUsedBy(message.pool).map(({ address }) => address)
    const { key, claim } = message
    const next = decideIp({ outcome: outcome.kind, category, ip, message, poolIps, now })
    const events = [eventOf(message, { ...judgement, reply }, isp, now)]
    const settled = { key, claim, attempt, outcome, isp, category, transcript, refund, ...next, events }
    const suppresses = judgeAddress(message, judgement, now)
    if (typeof suppresses === 'boolean') return recorder.record(message, counted({ ...settled, suppresses }))
    const outcomeLater = suppresses.catch(notKnown).then((isDead) => counted({ ...settled, suppresses: isDead }))
    recorder.recordLater(message, outcomeLater)
  }
}

/** `isp`: once the provider is known. `email.attempted` is the store's. */
function eventOf(message: ClaimedMessage, judgement: Judgement, isp: string | null, now: number): ServiceEvent {
  const { outcome, reply } = judgement
  const { id, recipient, recipientDomain } = message
  const event = (kind: ServiceEvent['kind'], data: Record<string, string>): ServiceEvent => {
    return { id: newIdentifier('evt', now), kind, at: now, data }
  }
  switch (outcome.kind) {
    case 'delivered':
      return event('email.delivered', deliveredData(id, recipient, isp ?? recipientDomain))
    case 'bounced':
    case 'expired':
      return event('email.bounced', bouncedData(id, recipient, outcome.bounce))
    case 'deferred':
    case 'path-failed':
    case 'ambiguous': {
      const description = reply.slice(0, MOST_DESCRIPTION_CHARACTERS).toWellFormed()
      const facts = { isp: isp ?? recipientDomain, description, nextAttemptAt: outcome.retryAt }
      return event('email.deferred', deferredData(id, recipient, facts))
    }
    default:
      return unreachable(outcome)
  }
}

/**
 * Whether the end of a message puts its address onto the suppression list. Only a bounce that calls the address dead
 * does; with `suppress: second` the address needs such an end twice within 30 days, at least 24 h apart. An address
 * with any other hard bounce gets no mail any more, so an earlier one can only have been of that kind. Simulated
 * recipients are never put there. Answers at once but for the rare rule that needs the history; rejects when the store
 * does.
 */
function createJudgeAddress(store: Pick<Store, 'searchMessages'>) {
  async function isSecond(recipient: string, now: number): Promise<boolean> {
    const [since, until] = [now - SECOND_WITHIN, now - SECOND_AFTER]
    const asked = { ...ANY, recipient, now, state: 'bounced' as const, since, until, limit: MOST_LOOKED_AT }
    const { messages } = await store.searchMessages(asked)
    return messages.some(({ bounce }) => bounce?.type === 'hard' && now - bounce.at >= SECOND_AFTER)
  }

  return (message: ClaimedMessage, { outcome, suppress }: Judgement, now: number): boolean | Promise<boolean> => {
    const { recipient, recipientDomain } = message
    if (outcome.kind !== 'bounced' || isSimulated(recipientDomain)) return false
    return suppress === 'second' ? isSecond(recipient, now) : suppress === 'always'
  }
}
