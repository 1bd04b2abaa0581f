/**
 * The reply rules of providers.yaml: which of them a reply counts for, and whether its matches are enough
 * (egress/README.md "Reply rules"). Only what a server said is ever given to them; our own sentences are not replies.
 * Pure; times are Unix milliseconds. `createReplyRules` throws for an expression that does not compile: the
 * configuration refuses those at load.
 */
import {
  ANY_PROVIDER,
  type REPLY_STAGES,
  type ReplyRuleSettings,
  type Threshold,
} from '../../config/settings/provider-settings.ts'
import { MOST_REPLY_CHARACTERS, type SmtpReply, type SmtpStage } from '../../mail/reply/smtp-reply.ts'

/** The first rule that matches, and later ones that say `also`; empty: none, or the reply is no refusal. */
export type MatchRules = (reply: SmtpReply, stage: SmtpStage, provider: string | null) => ReplyRuleSettings[]

/** Rules name six stages: the banner belongs to connecting, STARTTLS to the greeting. */
const STAGE_IN_RULES: Readonly<Record<SmtpStage, (typeof REPLY_STAGES)[number]>> = {
  connect: 'connect',
  banner: 'connect',
  ehlo: 'ehlo',
  starttls: 'ehlo',
  mail: 'mail',
  rcpt: 'rcpt',
  data: 'data',
  dot: 'dot',
}
const LOWEST_REFUSAL = 400

/** `settings`: in the order of trial, as the configuration has them. */
export function createReplyRules(settings: readonly ReplyRuleSettings[]): MatchRules {
  const compiled = settings.map((rule) => ({ rule, expression: new RegExp(rule.match, 'iu') }))
  const byProvider = new Map<string | null, typeof compiled>()

  function rulesFor(provider: string | null): typeof compiled {
    const known = byProvider.get(provider)
    if (known !== undefined) return known
    const found = compiled.filter(({ rule }) => rule.provider === ANY_PROVIDER || rule.provider === provider)
    byProvider.set(provider, found)
    return found
  }

  return (reply, stage, provider) => {
    if (reply.code < LOWEST_REFUSAL) return []
    const text = reply.text.slice(0, MOST_REPLY_CHARACTERS)
    const found: ReplyRuleSettings[] = []
    for (const { rule, expression } of rulesFor(provider)) {
      if (found.length > 0 && !rule.also) continue
      if (rule.stage.length > 0 && !rule.stage.includes(STAGE_IN_RULES[stage])) continue
      if (expression.test(text)) found.push(rule)
    }
    return found
  }
}

/** Matches within a sliding time, by the rule's id or by what else is counted: when, oldest first. */
export type MatchCounts = Map<string, number[]>

/** Counts one more; true: these were enough, and counting starts anew. */
export function countMatch(counts: MatchCounts, name: string, threshold: Threshold, now: number): boolean {
  const { count, within_milliseconds: within } = threshold
  const recent = (counts.get(name) ?? []).filter((at) => within === null || at > now - within)
  recent.push(now)
  if (recent.length < count) {
    counts.set(name, recent)
    return false
  }
  counts.delete(name)
  return true
}

/** What is older than any threshold reaches says nothing any more. */
export function forgetOldMatches(counts: MatchCounts, before: number): void {
  for (const [name, times] of counts) if ((times.at(-1) ?? 0) < before) counts.delete(name)
}
