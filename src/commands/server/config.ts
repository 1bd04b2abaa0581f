/**
 * `sternpost config` and `sternpost reload`. `show` prints every value of the files in a folder, with --origin where it
 * comes from; `docs` says what a key is for, its type and its default: both need no server. `reload` and `diff`: the
 * running server takes its files over, or says what would change (config/README.md "Reload").
 *
 * Secrets are never in a file, only the place where they are; that is shown. Throws ProcessExit 64 for a key that there
 * is none of, ConfigurationError for files that cannot be read; files with an error change nothing.
 */
import type { Command } from 'commander'
import { ipSchema } from '../../api/ip.ts'
import { reloadResultSchema, type ReloadResultJson } from '../../api/server.ts'
import { ConfigurationError, EXIT } from '../../base/errors.ts'
import { followsReload } from '../../config/configuration-diff.ts'
import { shippedDocs, typeText } from '../../config/json-schemas.ts'
import { nearestName } from '../../config/settings/nearest-name.ts'
import { explainMistakes } from '../../config/source/explain-mistake.ts'
import { FILE_NAMES, type FileName } from '../../config/source/finding.ts'
import { readFolder } from '../../config/source/read-folder.ts'
import { shownSettings, type SettingDoc } from '../../config/source/setting-docs.ts'
import { askAll, callServer, ifPermitted, LONG_PATIENCE, readAnswer } from '../shared/api-client.ts'
import { installedOrShippedFolder, misuse, SHIPPED_FOLDER } from '../shared/flag-values.ts'
import { printNote, printResult, type OutputFlags } from '../shared/print.ts'
import { columnsText, linesText, preciseTime, printable, sheetText, type Columns } from '../shared/text.ts'
import { addLocalVerb, addVerb, withFileFlags, withOutputFlags, type VerbFlags } from '../shared/verb.ts'
import { addCheckCommand } from './check.ts'
import { addTestReplyVerb } from './test-reply.ts'

type ShowFlags = OutputFlags & { config?: string; origin?: boolean }

interface FoundValue {
  /** As --json prints it. `origin`: `/etc/sternpost/sternpost.yaml:12`, or `default`. */
  document: { file: FileName; key: string; value: unknown; origin: string }
  text: string
}

export function addConfigCommands(program: Command): void {
  const config = program.command('config').description('the configuration files')
  addVerb(config, 'diff', 'compare the files with what the server runs with').action(diff)
  const shown = 'print the values of the configuration files, or those below a key'
  const show = addLocalVerb(config, 'show [key]', shown, 'delivery --origin\npools')
  withFileFlags(show.option('--origin', 'say where each value comes from')).action(showValues)
  const explained = 'say what a key is for, its type and its default'
  const example = 'delivery.retry\nwarmup.defaults.smoothing'
  withOutputFlags(addLocalVerb(config, 'docs <key>', explained, example)).action(docs)
  addCheckCommand(config)
  addTestReplyVerb(config)
}

function showValues(key: string | undefined, flags: ShowFlags): void {
  const { trees, mistakes } = readFolder(installedOrShippedFolder(flags.config), SHIPPED_FOLDER)
  if (mistakes.some(({ severity }) => severity === 'error')) throw new ConfigurationError(mistakes)
  const all = FILE_NAMES.flatMap((file) => {
    const tree = trees[file]
    // The shipped pools are an example, not a default; of the rules every one is written.
    const known = file === 'pools' ? [] : shippedDocs(SHIPPED_FOLDER, file)
    const settings = tree === undefined ? [] : shownSettings(tree, known)
    return settings.map(({ path, value, text, origin }): FoundValue => {
      const place = origin === null ? 'default' : `${origin.file}:${origin.line}`
      return { document: { file, key: path, value, origin: place }, text }
    })
  })
  const found = key === undefined ? all : all.filter((value) => isBelow(fullKey(value), key))
  if (found.length === 0) throw unknownKey(key ?? '', all.map(fullKey))
  const { FROM: _, ...withoutOrigin } = VALUE_COLUMNS
  const columns = flags.origin === true ? VALUE_COLUMNS : withoutOrigin
  const documents = found.map(({ document }) => document)
  printResult(flags, documents, () => columnsText(columns, found))
}

const VALUE_COLUMNS: Columns<FoundValue> = {
  KEY: fullKey,
  VALUE: ({ text }) => text,
  FROM: ({ document }) => document.origin,
}

function fullKey({ document: { file, key } }: FoundValue): string {
  return nameOf(file, key)
}

/** As keys are named everywhere: those of sternpost.yaml alone, the others behind the name of their file. */
function nameOf(file: FileName, key: string): string {
  return file === 'sternpost' || key.startsWith(`${file}.`) ? key : `${file}.${key}`
}

function isBelow(key: string, asked: string): boolean {
  return key === asked || key.startsWith(`${asked}.`) || key.startsWith(`${asked}[`)
}

function docs(key: string, flags: OutputFlags): void {
  const all = FILE_NAMES.flatMap((file) => shippedDocs(SHIPPED_FOLDER, file))
  const nameOfDoc = ({ file, path }: SettingDoc): string => nameOf(file, path)
  const found = all.find((doc) => nameOfDoc(doc) === key)
  if (found === undefined) throw unknownKey(key, all.map(nameOfDoc))
  const { file, path, text, shipped } = found
  const type = typeText(file, path)
  const isFollowed = followsReload(file, path)
  const document = {
    file,
    key: path,
    text,
    type,
    default: shipped === null ? null : found.value,
    takes_effect: isFollowed ? 'reload' : 'restart',
  }
  printResult(flags, document, () =>
    sheetText(key, [
      ['what', text],
      ['type', type],
      ['default', shipped],
      ['file', `${file}.yaml`],
      ['changes', `take effect at ${isFollowed ? 'sternpost reload' : 'the next start'}`],
    ]),
  )
  const inner = all.filter((doc) => isBelow(nameOfDoc(doc), key) && doc !== found)
  if (inner.length > 0) printNote(flags, `Keys below it: ${inner.map((doc) => printable(nameOfDoc(doc))).join(', ')}`)
}

function unknownKey(key: string, known: readonly string[]): Error {
  const meant = nearestName(key, known)
  const sections = [...new Set(known.map((name) => name.split('.')[0] ?? name))]
  const fix = meant === null ? `there are ${sections.join(', ')}` : `did you mean ${meant}?`
  return misuse(`no key "${key}"; ${fix}`)
}

export function addReloadCommand(program: Command): void {
  const taken = 'let the running server take over its configuration files: all of them, or nothing'
  addVerb(program, 'reload', taken, '--dry-run').option('--dry-run', 'only say what would change').action(reload)
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
  // It moves the mail of pools that are gone.
  const options = { body: { dry_run: isDryRun }, patience: LONG_PATIENCE }
  const answer = readAnswer(reloadResultSchema, await callServer(flags, 'POST /v1/admin/reload', options))
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
