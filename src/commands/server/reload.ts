/**
 * `sternpost reload` and `sternpost config diff`: the running server takes its files over, or says what would change
 * (config/README.md "Reload"). Files with an error change nothing: the errors are printed, exit 78.
 */
import type { ReloadResultJson } from '../../api/server.ts'
import type { Command } from 'commander'
import { ConfigurationError, EXIT } from '../../base/errors.ts'
import { explainMistakes } from '../../config/source/explain-mistake.ts'
import { callServer, ifPermitted, listFromServer } from '../shared/api-client.ts'
import { preciseTime, printable, printNote, printResult } from '../shared/print.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'

export function addReloadCommand(program: Command): void {
  addVerb(program, {
    words: 'reload',
    description: 'let the running server take over its configuration files: all of them, or nothing',
    example: 'sternpost reload --dry-run',
  })
    .option('--dry-run', 'only say what would change')
    .action(reload)
}

export function addDiffVerb(config: Command): void {
  addVerb(config, {
    words: 'diff',
    description: 'compare the files with what the server runs with',
    example: 'sternpost config diff',
  }).action(diff)
}

async function reload(flags: VerbFlags & { dryRun?: boolean }): Promise<void> {
  const answer = await ask(flags, flags.dryRun === true)
  if (answer === null) return
  const { applied, revision, duration_ms: duration, lines } = answer
  const head = applied ? `reloaded, revision ${revision} (${duration} ms)` : `revision ${revision} stays: a dry run`
  const body = lines.length === 0 ? ['nothing has changed'] : lines
  printResult(flags, answer, () => linesText([head, ...body.map((line) => `  ${line}`)]))
}

async function diff(flags: VerbFlags): Promise<void> {
  const answer = await ask(flags, true)
  if (answer === null) return
  printResult(flags, answer, () => linesText(answer.lines))
  if (answer.lines.length === 0) printNote(flags, 'The files say what the server runs with.')
  const ips = await ifPermitted(() => listFromServer(serverAddress(flags), '/v1/ips'))
  for (const ip of ips ?? []) {
    const shown = readAnswer<HaltedIp>(ip, 'ip', 'status', 'changed_by', 'changed_at')
    if (!HALTED.includes(shown.status)) continue
    const since = preciseTime(shown.changed_at)
    printNote(flags, `Not in the files: ${shown.ip} is ${shown.status} by ${shown.changed_by} since ${since}`)
  }
}

/** States that hold until somebody or the clock ends them, whatever the files say. */
const HALTED = ['paused', 'suspended']

interface HaltedIp {
  ip: string
  status: string
  changed_by: string
  /** Unix seconds. */
  changed_at: number
}

/** null: with --json, files with errors were told already. */
async function ask(flags: VerbFlags, isDryRun: boolean): Promise<ReloadResultJson | null> {
  const call = { method: 'POST' as const, path: '/v1/admin/reload', body: { dry_run: isDryRun } }
  const given = await callServer(serverAddress(flags), call)
  const answer = readAnswer<ReloadResultJson>(given, 'applied', 'revision', 'lines', 'mistakes')
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

function linesText(lines: readonly string[]): string {
  return lines.map((line) => `${printable(line)}\n`).join('')
}
