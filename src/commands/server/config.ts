/**
 * `sternpost config`: `diff` compares the files with the running server (`reload.ts`), `show` and `docs` explain them
 * (`config-keys.ts`), `check` validates them (`check.ts`).
 *
 * `test-reply` needs no server: it says what the rules make of an SMTP reply (egress/README.md "Reply rules",
 * mail/README.md "Three decisions"): which rule of providers.yaml shapes the path, which of bounces.yaml gives the
 * category, where both stand, and the three decisions that follow.
 */
import { Option, type Command } from 'commander'
import { explainMistakes } from '../../config/source/explain-mistake.ts'
import { loadRules, type LoadedRules } from '../../config/read-parts.ts'
import { nearestName } from '../../config/settings/nearest-name.ts'
import { REPLY_STAGES } from '../../config/settings/provider-settings.ts'
import type { Position } from '../../config/source/source-tree.ts'
import { createClassifier } from '../../mail/reply/classify-reply.ts'
import { readSmtpReply, type SmtpReply } from '../../mail/reply/smtp-reply.ts'
import { addCheckCommand } from './check.ts'
import { addKeyVerbs } from './config-keys.ts'
import { misuse } from '../shared/flag-values.ts'
import { printNote, printResult, type OutputFlags } from '../shared/print.ts'
import {
  decisionsFor,
  matchReplyRule,
  replyReport,
  type ReplyStage,
  type ReplyView,
  type RulePlace,
} from './reply-decisions.ts'
import { addDiffVerb } from './reload.ts'
import { installedOrShippedFolder, SHIPPED_FOLDER } from '../shared/shared-options.ts'

interface TestReplyFlags extends OutputFlags {
  config?: string
  provider?: string
  stage: ReplyStage
}

const EXAMPLE = `Example:
  sternpost config test-reply --provider google --stage dot '421-4.7.28 an unusual rate of unsolicited mail'`

export function addConfigCommands(program: Command): void {
  const config = program.command('config').description('the configuration files')
  addDiffVerb(config)
  addKeyVerbs(config)
  addCheckCommand(config, 'config ')
  config
    .command('test-reply <text>')
    .description('say which reply and bounce rule a text matches, and what follows')
    .option('--provider <id>', 'provider of providers.yaml that it came from (default: none of them)')
    .addOption(
      new Option('--stage <stage>', 'where in the dialogue; dsn: a report by mail')
        .choices([...REPLY_STAGES, 'dsn'])
        .default('rcpt'),
    )
    .option('--config <dir>', 'folder of the configuration files (default: the installed ones, else the shipped ones)')
    .option('--json', 'print one JSON document')
    .option('--quiet', 'print the result alone')
    .addHelpText('after', `\n${EXAMPLE}`)
    .action(testReply)
}

function testReply(text: string, flags: TestReplyFlags): void {
  const { provider = null, stage } = flags
  // Typed on a command line, a line end is often the two characters \n.
  const reply = readSmtpReply(text.replaceAll(/\\r?\\n/g, '\n'))
  if (reply === undefined) throw misuse(`"${text}" is no SMTP reply; write for example '550 5.1.1 No such user'`)
  const rules = loadRules(installedOrShippedFolder(flags.config), SHIPPED_FOLDER)
  requireProvider(rules, provider)
  if (rules.warnings.length > 0) printNote(flags, explainMistakes(rules.warnings))
  const view = judge(rules, { reply, provider, stage })
  printResult(flags, view, () => replyReport(view))
}

interface GivenReply {
  reply: SmtpReply
  provider: string | null
  stage: ReplyStage
}

function judge(rules: LoadedRules, given: GivenReply): ReplyView {
  const { reply, provider, stage } = given
  const found = createClassifier(rules.bounces.rules)(reply, stage, provider)
  const shaping = matchReplyRule(rules.providers.replies, given)
  return {
    code: reply.code,
    enhanced_code: reply.enhancedCode,
    provider,
    stage,
    reply_rule:
      shaping === null
        ? null
        : { ...placeOf(shaping.id, rules.replyRulePosition), do: shaping.do, block: shaping.block },
    bounce_rule: found.rule === null ? null : placeOf(found.rule, rules.bounceRulePosition),
    category: found.category,
    ...decisionsFor(found, reply, stage),
  }
}

function placeOf(id: string, positionOf: (id: string) => Position | undefined): RulePlace {
  const { file = '', line = 0 } = positionOf(id) ?? {}
  return { id, file, line }
}

function requireProvider({ providers }: LoadedRules, provider: string | null): void {
  const known = Object.keys(providers.providers)
  if (provider === null || known.includes(provider)) return
  const meant = nearestName(provider, known)
  const fix = meant === null ? `known are ${known.join(', ')}` : `write ${meant}`
  throw misuse(`--provider: providers.yaml has no provider "${provider}"; ${fix}`)
}
