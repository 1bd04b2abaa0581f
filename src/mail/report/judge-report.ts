/**
 * What a reported failure means: bounce type, category and suppression, by the same rules as a reply in the dialogue
 * (mail/README.md "Reading a report"). Pure.
 */
import { BOUNCE_CATEGORIES, type BounceCategory } from '../reply/bounce-category.ts'
import type { ClassifyReply, Suppression } from '../reply/classify-reply.ts'
import type { BounceType } from '../reply/delivery-outcome.ts'
import { vagueness } from './report-diagnostic.ts'
import type { ReportedRecipient } from './report-reading.ts'
import type { SmtpReply } from '../reply/smtp-reply.ts'

export interface ReportJudgement {
  bounceType: BounceType
  category: BounceCategory
  rule: string | null
  suppress: Suppression
  /** The reply as rules saw it, for `bounceFor`. */
  reply: SmtpReply
}

/** Undefined when nothing went wrong: delivered, relayed, expanded. */
export function judgeReported(
  recipient: ReportedRecipient,
  classify: ClassifyReply,
  provider: string | null,
): ReportJudgement | undefined {
  if (recipient.action !== 'failed' && recipient.action !== 'delayed') return undefined
  const reply = replyOf(recipient)
  const { rule, ...found } = classify(reply, recipient.stage, provider)
  const isOther = recipient.stage === 'dsn' && found.inReports !== null
  const category = isOther ? (found.inReports ?? found.category) : found.category
  const { type } = BOUNCE_CATEGORIES[category]
  const suppress = isOther && type === 'hard' ? 'second' : found.suppress
  const { action, status } = recipient
  // Refused for the time being, and no more: no last word on the address (mail/README.md "Reading a report"). Beside a
  // status that names no cause the code of the reply counts: Exim writes 5.0.0 for whatever it gives up.
  const isVague = status === null || vagueness(status) > 0
  const isSoft = action === 'delayed' || status?.startsWith('4') === true || (isVague && reply.code < 500)
  const bounceType = type === 'hard' && isSoft ? 'soft' : type
  return { bounceType, category, rule, suppress: isSoft ? 'never' : suppress, reply }
}

/** Without a reply code the class of the status, without that the action decides between 4xx and 5xx. */
function replyOf({ action, status, replyCode, diagnostic }: ReportedRecipient): SmtpReply {
  const ofClass = status === null ? (action === 'failed' ? 5 : 4) : Number(status.charAt(0))
  const enhancedCode = status?.startsWith('2') === true ? null : status
  return { code: replyCode ?? (ofClass === 4 ? 450 : 550), enhancedCode, text: diagnostic }
}
