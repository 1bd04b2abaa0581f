/**
 * What a refusal means: rules and codes to a category, and a category to the bounce the customer sees (mail/README.md
 * "Three decisions"). Pure, and never throws for a reply: one that nothing matches is `temporary` (4xx) or `unknown`
 * (5xx).
 */
import { BOUNCE_CATEGORIES, BOUNCE_CATEGORY_NAMES, categoryOfCodes, type BounceCategory } from './bounce-category.ts'
import type { Bounce } from './delivery-outcome.ts'
import { MOST_REPLY_CHARACTERS, withoutTokens, type ReportStage, type SmtpReply } from './smtp-reply.ts'

/** A line of bounces.yaml, checked when it was loaded. */
export interface BounceRule {
  id: string
  /** A provider's id; `any` or null: all. */
  provider: string | null
  /** Stages it is tried at; empty: all. */
  stage: readonly string[]
  /** First digit of the reply code; null: both. */
  class: 4 | 5 | null
  /** Source of a regular expression with the flags `iu`. */
  match: string
  category: string
  /** In place of `category` in a report that does not tell the stage. */
  in_reports?: string | null
  weak: boolean
  /** What becomes of the address when the category calls it dead; left out: `always`. */
  suppress?: 'always' | 'second'
}

/** Whether an address goes onto the suppression list (mail/README.md "Categories"). */
export type Suppression =
  | 'never' // the address is not to blame
  | 'always' // this answer is enough
  | 'second' // the second such answer within 30 days, at least 24 h after the first

export interface Classification {
  category: BounceCategory
  /** Id of the rule that decided, or null when code or class did. */
  rule: string | null
  suppress: Suppression
  /** What it means in a report that does not tell the stage, where that is something else. */
  inReports: BounceCategory | null
}

export type ClassifyReply = (reply: SmtpReply, stage: ReportStage, provider: string | null) => Classification

/** Throws for a rule whose pattern or category is not one: configuration refuses those at load. */
export function createClassifier(rules: readonly BounceRule[]): ClassifyReply {
  const compiled = rules.map(compileRule)
  const ofProviders = compiled.filter((rule) => rule.provider !== null)
  const ordered = [...ofProviders, ...compiled.filter((rule) => rule.provider === null)]
  const strong = ordered.filter((rule) => !rule.weak)
  const weak = ordered.filter((rule) => rule.weak)
  return (reply, stage, provider) => {
    const subject = { reply, stage, provider, text: reply.text.slice(0, MOST_REPLY_CHARACTERS) }
    const byRules = (candidates: readonly CompiledRule[]): Classification | undefined => {
      const found = candidates.find((rule) => mayDecide(rule.category, stage, true) && isMatch(rule, subject))
      return found === undefined ? undefined : classified(found.category, found)
    }
    const byCodes = (): Classification | undefined => {
      const category = categoryOfCodes(reply, stage)
      return category !== undefined && mayDecide(category, stage, false) ? classified(category, null) : undefined
    }
    return byRules(strong) ?? byCodes() ?? byRules(weak) ?? classified(categoryOfClass(reply, stage), null)
  }
}

/** The end of a message as events show it; `sentence` stands in where there was no reply. */
export function bounceFor(category: BounceCategory, reply: SmtpReply | null, sentence: string): Bounce {
  const { type, defaultCode } = BOUNCE_CATEGORIES[category]
  const description = describe(reply?.text ?? '', sentence)
  return { type, category, code: reply?.enhancedCode ?? defaultCode, description }
}

type CompiledRule = ReturnType<typeof compileRule>

interface Subject {
  reply: SmtpReply
  stage: ReportStage
  provider: string | null
  text: string
}

/** Rules name six stages: the banner belongs to connecting, STARTTLS to the greeting. */
const STAGE_IN_RULES: Partial<Record<ReportStage, ReportStage>> = { banner: 'connect', starttls: 'ehlo' }

/** http/README.md "Events". */
const MOST_DESCRIPTION_CHARACTERS = 1_000

function compileRule(rule: BounceRule) {
  const provider = rule.provider === 'any' ? null : rule.provider
  const inReports = rule.in_reports == null ? null : categoryNamed(rule.in_reports, rule.id)
  const category = categoryNamed(rule.category, rule.id)
  return { ...rule, provider, category, inReports, pattern: new RegExp(rule.match, 'iu') }
}

function categoryNamed(wanted: string, ruleId: string): BounceCategory {
  const category = BOUNCE_CATEGORY_NAMES.find((name) => name === wanted)
  if (category === undefined) throw new Error(`bounce rule ${ruleId}: unknown category ${wanted}`)
  return category
}

function classified(category: BounceCategory, rule: CompiledRule | null): Classification {
  const isDead = BOUNCE_CATEGORIES[category].type === 'hard'
  const suppress = isDead ? (rule?.suppress ?? 'always') : 'never'
  return { category, rule: rule?.id ?? null, suppress, inReports: rule?.inReports ?? null }
}

function isMatch(rule: CompiledRule, subject: Subject): boolean {
  const { reply, stage, provider, text } = subject
  if (rule.provider !== null && rule.provider !== provider) return false
  if (rule.stage.length > 0 && !rule.stage.includes(STAGE_IN_RULES[stage] ?? stage)) return false
  if (rule.class !== null && rule.class !== Math.floor(reply.code / 100)) return false
  return rule.pattern.test(text)
}

/** A category that suppresses the address must come from a stage at which the reply is about the address. */
function mayDecide(category: BounceCategory, stage: ReportStage, isByRule: boolean): boolean {
  if (BOUNCE_CATEGORIES[category].type !== 'hard') return true
  return stage === 'rcpt' || stage === 'dot' || stage === 'dsn' || (stage === 'data' && isByRule)
}

function categoryOfClass(reply: SmtpReply, stage: ReportStage): BounceCategory {
  if (reply.code < 500) return 'temporary'
  return stage === 'mail' ? 'sender_refused' : 'unknown'
}

/** Never empty, one line, at most 1,000 characters. */
function describe(text: string, sentence: string): string {
  // Every control character.
  const clean = withoutTokens(text.replace(/\p{Cc}+/gu, ' ').trim())
  const characters = [...(clean === '' ? sentence : clean)]
  return characters.slice(0, MOST_DESCRIPTION_CHARACTERS).join('').toWellFormed()
}
