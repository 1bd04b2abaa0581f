/**
 * `sternpost config`: `show` prints every value of the files in a folder, with --origin where it comes from; `docs` says
 * what a key is for, its type and its default. Both need no server. `diff`: `reload.ts`; `check`: `check.ts`;
 * `test-reply`: `test-reply.ts`.
 *
 * Secrets are never in a file, only the place where they are; that is shown. Throws ProcessExit 64 for a key that there
 * is none of, ConfigurationError for files that cannot be read.
 */
import type { Command } from 'commander'
import { ConfigurationError } from '../../base/errors.ts'
import { followsReload } from '../../config/configuration-diff.ts'
import { shippedDocs, typeText } from '../../config/json-schemas.ts'
import { nearestName } from '../../config/settings/nearest-name.ts'
import { FILE_NAMES, type FileName } from '../../config/source/finding.ts'
import { readFolder } from '../../config/source/read-folder.ts'
import type { SettingDoc } from '../../config/source/setting-docs.ts'
import { shownSettings } from '../../config/source/shown-settings.ts'
import { misuse } from '../shared/flag-values.ts'
import { columnsText, printable, printNote, printResult, sheetText } from '../shared/print.ts'
import type { Columns, OutputFlags } from '../shared/print.ts'
import { installedOrShippedFolder, SHIPPED_FOLDER } from '../shared/shared-options.ts'
import { addLocalVerb, withFileFlags } from '../shared/verb.ts'
import { addCheckCommand } from './check.ts'
import { addDiffVerb } from './reload.ts'
import { addTestReplyVerb } from './test-reply.ts'

type ShowFlags = OutputFlags & { config?: string; origin?: boolean }

interface FoundValue {
  /** As --json prints it. `origin`: `/etc/sternpost/sternpost.yaml:12`, or `default`. */
  document: { file: FileName; key: string; value: unknown; origin: string }
  text: string
}

export function addConfigCommands(program: Command): void {
  const config = program.command('config').description('the configuration files')
  addDiffVerb(config)
  const shown = 'print the values of the configuration files, or those below a key'
  const show = addLocalVerb(config, 'show [key]', shown, 'delivery --origin\npools')
  withFileFlags(show.option('--origin', 'say where each value comes from')).action(showValues)
  const explained = 'say what a key is for, its type and its default'
  addLocalVerb(config, 'docs <key>', explained, 'delivery.retry\nwarmup.defaults.smoothing')
    .option('--json', 'print one JSON document')
    .option('--quiet', 'print the result alone')
    .action(docs)
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
