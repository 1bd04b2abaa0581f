/**
 * `sternpost reload` and `sternpost config diff`: the running server takes its files over, or says what would change
 * (config/README.md "Reload"). Files with an error change nothing: the errors are printed, exit 78.
 */
import type { Command } from 'commander'
import { ipSchema } from '../../api/ip.ts'
import { reloadResultSchema, type ReloadResultJson } from '../../api/server.ts'
import { ConfigurationError, EXIT } from '../../base/errors.ts'
import { explainMistakes } from '../../config/source/explain-mistake.ts'
import { ask, askAll, ifPermitted } from '../shared/api-client.ts'
import { linesText, preciseTime, printNote, printResult } from '../shared/print.ts'
import { addVerb, type VerbFlags } from '../shared/verb.ts'

export function addReloadCommand(program: Command): void {
  const taken = 'let the running server take over its configuration files: all of them, or nothing'
  addVerb(program, 'reload', taken, '--dry-run').option('--dry-run', 'only say what would change').action(reload)
}

export function addDiffVerb(config: Command): void {
  addVerb(config, 'diff', 'compare the files with what the server runs with').action(diff)
}

async function reload(flags: VerbFlags & { dryRun?: boolean }): Promise<void> {
  const answer = await askFor(flags, flags.dryRun === true)
  if (answer === null) return
  const { applied, revision, duration_ms: duration, lines } = answer
  const head = applied ? `reloaded, revision ${revision} (${duration} ms)` : `revision ${revision} stays: a dry run`
  const body = lines.length === 0 ? ['nothing has changed'] : lines
  printResult(flags, answer, () => linesText([head, ...body.map((line) => `  ${line}`)]))
}

/** States that hold until somebody or the clock ends them, whatever the files say. */
const HALTED = ['paused', 'suspended']

async function diff(flags: VerbFlags): Promise<void> {
  const answer = await askFor(flags, true)
  if (answer === null) return
  printResult(flags, answer, () => linesText(answer.lines))
  if (answer.lines.length === 0) printNote(flags, 'The files say what the server runs with.')
  const ips = await ifPermitted(() => askAll(flags, ipSchema, '/v1/ips'))
  for (const { ip, status, changed_by: person, changed_at: changedAt } of ips ?? []) {
    if (!HALTED.includes(status)) continue
    printNote(flags, `Not in the files: ${ip} is ${status} by ${person} since ${preciseTime(changedAt)}`)
  }
}

/** null: with --json, files with errors were told already. */
async function askFor(flags: VerbFlags, isDryRun: boolean): Promise<ReloadResultJson | null> {
  const answer = await ask(flags, reloadResultSchema, 'POST /v1/admin/reload', { dry_run: isDryRun })
  const { mistakes } = answer
  if (!mistakes.some(({ severity }) => severity === 'error')) {
    if (mistakes.length > 0) printNote(flags, explainMistakes(mistakes))
    return answer
  }
  if (flags.json !== true) throw new ConfigurationError(mistakes)
  printResult(flags, answer, () => '')
  process.exitCode = EXIT.configuration
  return null
}
