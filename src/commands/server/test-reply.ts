/**
 * `sternpost config test-reply`: what the rules make of an SMTP reply (egress/README.md "Reply rules", mail/README.md
 * "Three decisions"). Needs no server.
 *
 * Which rule of providers.yaml shapes the path, which of bounces.yaml gives the category, where both stand, and the
 * three decisions that follow: what happens now, the bounce type at the end, and whether the address is suppressed.
 */
import { Option, type Command } from 'commander'
import { HOUR } from '../../base/clock.ts'
import type { LoadedRules } from '../../config/read-parts.ts'
import { REPLY_STAGES } from '../../config/settings/provider-settings.ts'
import type { Position } from '../../config/source/source-tree.ts'
import { createReplyRules } from '../../egress/shaping/reply-rules.ts'
import { BOUNCE_CATEGORIES } from '../../mail/reply/bounce-category.ts'
import { createClassifier, type Classification, type Suppression } from '../../mail/reply/classify-reply.ts'
import { readSmtpReply, type SmtpReply } from '../../mail/reply/smtp-reply.ts'
import { noProvider, readRules } from '../sending/provider.ts'
import { misuse } from '../shared/flag-values.ts'
import { printResult, type OutputFlags } from '../shared/print.ts'
import { sheetText } from '../shared/text.ts'
import { addLocalVerb, withFileFlags, type Given } from '../shared/verb.ts'

/** Stages as rules name them; `dsn` is a report by mail. */
type ReplyStage = (typeof REPLY_STAGES)[number] | 'dsn'

type TestReplyFlags = OutputFlags & Given<'config' | 'provider'> & { stage: ReplyStage }

type ReplyView = ReturnType<typeof judge>

export function addTestReplyVerb(config: Command): void {
  const example = "--provider google --stage dot '421-4.7.28 an unusual rate of unsolicited mail'"
  const stages = new Option('--stage <stage>', 'where in the dialogue; dsn: a report by mail')
  const description = 'say which reply and bounce rule a text matches, and what follows'
  const verb = addLocalVerb(config, 'test-reply <text>', description, example)
    .option('--provider <id>', 'provider of providers.yaml that it came from (default: none of them)')
    .addOption(stages.choices([...REPLY_STAGES, 'dsn']).default('rcpt'))
  withFileFlags(verb).action(testReply)
}

function testReply(text: string, flags: TestReplyFlags): void {
  const { provider = null, stage } = flags
  // Typed on a command line, a line end is often the two characters \n.
  const reply = readSmtpReply(text.replaceAll(/\\r?\\n/g, '\n'))
  if (reply === undefined) throw misuse(`"${text}" is no SMTP reply; write for example '550 5.1.1 No such user'`)
  const rules = readRules(flags)
  const isKnown = provider === null || Object.hasOwn(rules.providers.providers, provider)
  if (!isKnown) throw misuse(`--provider: ${noProvider(provider, rules)}`)
  const view = judge(rules, { reply, provider, stage })
  printResult(flags, view, () => replyReport(view))
}

interface GivenReply {
  reply: SmtpReply
  provider: string | null
  stage: ReplyStage
}

function judge(rules: LoadedRules, { reply, provider, stage }: GivenReply) {
  const found = createClassifier(rules.bounces.rules)(reply, stage, provider)
  // As a running server finds it. A report by mail shapes no path.
  const shaping = stage === 'dsn' ? null : createReplyRules(rules.providers.replies)(reply, stage, provider)[0]
  return {
    code: reply.code,
    enhanced_code: reply.enhancedCode,
    provider,
    stage,
    // null: no rule of providers.yaml matches.
    reply_rule: shaping
      ? { ...placeOf(shaping.id, rules.replyRulePosition), do: shaping.do, block: shaping.block }
      : null,
    // null: the codes decided, or nothing did.
    bounce_rule: found.rule === null ? null : placeOf(found.rule, rules.bounceRulePosition),
    category: found.category,
    ...decisionsFor(found, reply, stage),
  }
}

function placeOf(id: string, positionOf: (id: string) => Position | undefined) {
  const { file = '', line = 0 } = positionOf(id) ?? {}
  return { id, file, line }
}

interface ReplyDecisions {
  /** A sentence. */
  now: string
  /** At the end, should it come to that. */
  bounce_type: string
  bounce_code: string
  suppress: Suppression
}

function decisionsFor({ category, suppress }: Classification, reply: SmtpReply, stage: ReplyStage): ReplyDecisions {
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

function replyReport(view: ReplyView): string {
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

function placeText({ id, file, line }: ReturnType<typeof placeOf>): string {
  return `${id} (${file}:${line})`
}
