/**
 * What follows from an SMTP reply (egress/README.md "Reply rules", mail/README.md "Three decisions"): the rule that
 * shapes its path, and the three decisions, what happens now, the bounce type at the end, and whether the address is
 * suppressed. As data and as text. Pure.
 */
import { HOUR } from '../../base/clock.ts'
import type { ProviderSettings, ReplyRuleSettings } from '../../config/settings/provider-settings.ts'
import { createReplyRules } from '../../egress/shaping/reply-rules.ts'
import { BOUNCE_CATEGORIES, type BounceCategory } from '../../mail/reply/bounce-category.ts'
import type { Classification, Suppression } from '../../mail/reply/classify-reply.ts'
import type { SmtpReply } from '../../mail/reply/smtp-reply.ts'
import { sheetText } from '../shared/print.ts'

/** Stages as rules name them; `dsn` is a report by mail. */
export type ReplyStage = 'connect' | 'ehlo' | 'mail' | 'rcpt' | 'data' | 'dot' | 'dsn'

export interface RulePlace {
  id: string
  file: string
  line: number
}

interface ReplyDecisions {
  /** A sentence. */
  now: string
  /** At the end, should it come to that. */
  bounce_type: string
  bounce_code: string
  suppress: Suppression
}

export interface ReplyView extends ReplyDecisions {
  code: number
  enhanced_code: string | null
  provider: string | null
  stage: ReplyStage
  /** null: no rule of providers.yaml matches. */
  reply_rule: (RulePlace & { do: string; block: boolean }) | null
  /** null: the codes decided, or nothing did. */
  bounce_rule: RulePlace | null
  category: BounceCategory
}

/** As a running server finds it. A report by mail shapes no path. */
export function matchReplyRule(
  rules: ProviderSettings['replies'],
  { reply, provider, stage }: { reply: SmtpReply; provider: string | null; stage: ReplyStage },
): ReplyRuleSettings | null {
  if (stage === 'dsn') return null
  return createReplyRules(rules)(reply, stage, provider)[0] ?? null
}

export function decisionsFor(
  { category, suppress }: Classification,
  reply: SmtpReply,
  stage: ReplyStage,
): ReplyDecisions {
  if (reply.code < 400) return { now: 'It is no refusal.', bounce_type: 'none', bounce_code: 'none', suppress: 'never' }
  const { type, defaultCode } = BOUNCE_CATEGORIES[category]
  const ofCategory = { bounce_type: type, bounce_code: reply.enhancedCode ?? defaultCode }
  if (stage === 'dsn') return { now: 'The message bounces: the report is final.', ...ofCategory, suppress }
  const { onPermanent, changesIp } = BOUNCE_CATEGORIES[category]
  const elsewhere = changesIp ? ', from another IP' : ''
  if (reply.code < 500 || onPermanent === 'schedule') {
    const expired = BOUNCE_CATEGORIES.expired
    const now = `It is tried again on schedule${elsewhere}; only the end of its lifetime ends it.`
    return { now, bounce_type: expired.type, bounce_code: expired.defaultCode, suppress: 'never' }
  }
  if (onPermanent === 'end') return { now: 'The message bounces at once.', ...ofCategory, suppress }
  const { retries, overMilliseconds } = onPermanent
  const time = overMilliseconds === null ? '' : ` over ${overMilliseconds / HOUR} h`
  const now = `It is tried ${retries === 1 ? 'once' : `${retries} times`} more${time}${elsewhere}, then it bounces.`
  return { now, ...ofCategory, suppress }
}

const SUPPRESSION_WORDS: Readonly<Record<Suppression, string>> = {
  never: 'is not suppressed',
  always: 'is suppressed',
  second: 'is suppressed by the second such answer within 30 days',
}

export function replyReport(view: ReplyView): string {
  const { reply_rule: replyRule, bounce_rule: bounceRule, bounce_type: type, bounce_code: code } = view
  const head = `${[view.code, view.enhanced_code].filter((part) => part !== null).join(' ')} at ${view.stage}`
  const effect = replyRule === null ? '' : `, ${replyRule.do}${replyRule.block ? ', counts as a block' : ''}`
  return sheetText(`${head}, provider ${view.provider ?? 'not known'}`, [
    ['reply rule', replyRule === null ? 'none matches' : placeText(replyRule) + effect],
    ['bounce rule', bounceRule === null ? 'none: the codes decide' : placeText(bounceRule)],
    ['category', view.category],
    ['1 now', view.now],
    ['2 at the end', type === 'none' ? 'no bounce' : `bounce type ${type}, code ${code}`],
    ['3 address', SUPPRESSION_WORDS[view.suppress]],
  ])
}

function placeText({ id, file, line }: RulePlace): string {
  return `${id} (${file}:${line})`
}
