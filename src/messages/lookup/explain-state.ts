/**
 * One or two sentences on where a message is and why (http/README.md "Explain"), but for one that is `sending`, of
 * which `explain-sending.ts` speaks. Pure.
 */
import { WHY_IN_DOUBT } from '../../mail/expiry-bounce.ts'
import type { MessageState } from '../../mail/message.ts'
import type { MessageView } from '../../store/records/lookup-records.ts'
import { categoryWords } from './category-words.ts'
import { timeUntil } from './time-words.ts'

interface StateFacts {
  message: MessageView
  /** Of the last refusal, or null. */
  category: string | null
  /** A sentence on what it waits for, where that is known. */
  waiting: string | undefined
  now: number
}

export function summaryOf(state: Exclude<MessageState, 'sending'>, facts: StateFacts): string {
  const { message, waiting } = facts
  const road = roadOf(message)
  switch (state) {
    case 'scheduled':
    case 'queued':
      return waiting ?? 'It is in the queue and leaves as soon as a connection is free.'
    case 'deferred':
      return [lastAttempt(facts), waiting].filter(Boolean).join(' ')
    case 'delivered':
      return `${road} took it ${attemptCount(message)}.`
    case 'bounced':
      return bouncedSummary(facts)
    case 'expired':
      return `Its lifetime ended before ${road} took it. ${lastAttempt({ ...facts, category: null })}`.trimEnd()
    case 'canceled':
      return message.isPossibleDuplicate
        ? `It was canceled, and may have arrived before: ${WHY_IN_DOUBT}.`
        : 'It was canceled before it was sent.'
    case 'suppressed':
      return 'It was not sent: the address is on the suppression list.'
  }
}

/** Who takes its mail, as far as that is known. */
function roadOf({ isp, recipientDomain }: MessageView): string {
  return isp ?? recipientDomain
}

/** Empty when there was none. */
function lastAttempt({ message, category, now }: StateFacts): string {
  const last = message.attempts.at(-1)
  if (last === undefined) return ''
  const says = category === null ? undefined : categoryWords(category)?.says
  const when = timeSince(last.at, now)
  return says === undefined
    ? `The last attempt, ${when}, ended with: ${last.reply}.`
    : `${roadOf(message)} ${says} (${when}).`
}

function bouncedSummary({ message, category }: StateFacts): string {
  const says = category === null ? undefined : categoryWords(category)?.says
  const late = message.bounce?.isLate === true ? ' The report came after it had been delivered.' : ''
  return `${roadOf(message)} ${says ?? 'refused it for good'}; it is not tried again.${late}`
}

function attemptCount({ attempts }: MessageView): string {
  return attempts.length > 1 ? `at attempt ${attempts.length}` : 'at the first attempt'
}

/** `14 minutes ago` */
function timeSince(at: number, now: number): string {
  const distance = timeUntil(now, at)
  return distance === 'now' ? 'just now' : `${distance.slice('in '.length)} ago`
}

/** Why something cannot be done in a state. */
const WORDS: Readonly<Record<MessageState, string>> = {
  scheduled: 'it waits for its time',
  queued: 'it waits to be sent',
  sending: 'its SMTP transaction is under way',
  deferred: 'it waits for its next attempt',
  delivered: "the recipient's server has taken it",
  bounced: 'it was refused for good',
  expired: 'its lifetime is over',
  canceled: 'it was withdrawn',
  suppressed: 'its address is on the suppression list',
}

/** A clause such as `it was withdrawn`. */
export function reasonAgainst(state: MessageState): string {
  return WORDS[state]
}
