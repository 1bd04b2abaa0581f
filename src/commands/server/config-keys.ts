/**
 * `sternpost config show`: every value of the files in a folder, with --origin where it comes from. `sternpost config
 * docs`: what a key is for, its type and its default. Both need no server.
 *
 * Secrets are never in a file, only the place where they are; that is shown. Throws ProcessExit 64 for a key that there
 * is none of, ConfigurationError for files that cannot be read.
 */
import type { Command } from 'commander'
import { ConfigurationError } from '../../base/errors.ts'
import { followsReload } from '../../config/configuration-diff.ts'
import { FILE_NAMES, type FileName } from '../../config/source/finding.ts'
import { shippedDocs, typeText } from '../../config/json-schemas.ts'
import { nearestName } from '../../config/settings/nearest-name.ts'
import { readFolder } from '../../config/source/read-folder.ts'
import type { SettingDoc } from '../../config/source/setting-docs.ts'
import { shownSettings, type ShownSetting } from '../../config/source/setting-docs.ts'
import { misuse } from '../shared/flag-values.ts'
import {
  isTerminal,
  printNote,
  printResult,
  printable,
  sheetText,
  tableText,
  type OutputFlags,
} from '../shared/print.ts'
import { installedOrShippedFolder, SHIPPED_FOLDER } from '../shared/shared-options.ts'

interface ShowFlags extends OutputFlags {
  config?: string
  origin?: boolean
}

/** One value, as --json prints it. */
interface ShownValue {
  file: FileName
  key: string
  value: unknown
  /** `/etc/sternpost/sternpost.yaml:12`, or `default`. */
  origin: string
}

interface DocumentedKey {
  file: FileName
  key: string
  text: string
  type: string
  default: unknown
  takes_effect: 'reload' | 'restart'
}

export function addKeyVerbs(config: Command): void {
  config
    .command('show [key]')
    .description('print the values of the configuration files, or those below a key')
    .option('--origin', 'say where each value comes from')
    .option('--config <dir>', 'folder of the configuration files (default: the installed ones, else the shipped ones)')
    .option('--json', 'print one JSON document')
    .option('--quiet', 'print the result alone')
    .addHelpText('after', '\nExample:\n  sternpost config show delivery --origin\n  sternpost config show pools')
    .action(show)
  config
    .command('docs <key>')
    .description('say what a key is for, its type and its default')
    .option('--json', 'print one JSON document')
    .option('--quiet', 'print the result alone')
    .addHelpText(
      'after',
      '\nExample:\n  sternpost config docs delivery.retry\n  sternpost config docs warmup.defaults.smoothing',
    )
    .action(docs)
}

function show(key: string | undefined, flags: ShowFlags): void {
  const folder = installedOrShippedFolder(flags.config)
  const { trees, mistakes } = readFolder(folder, SHIPPED_FOLDER)
  if (mistakes.some(({ severity }) => severity === 'error')) throw new ConfigurationError(mistakes)
  const all = FILE_NAMES.flatMap((file) => {
    const tree = trees[file]
    // The shipped pools are an example, not a default; of the rules every one is written.
    const known = file === 'pools' ? [] : shippedDocs(SHIPPED_FOLDER, file)
    return tree === undefined ? [] : shownSettings(tree, known).map((setting) => shownValue(file, setting))
  })
  const found = key === undefined ? all : all.filter((value) => isBelow(fullKey(value), key))
  if (found.length === 0) throw unknownKey(key ?? '', all.map(fullKey))
  printResult(
    flags,
    found.map(({ document }) => document),
    () =>
      tableText(
        flags.origin === true ? ['KEY', 'VALUE', 'FROM'] : ['KEY', 'VALUE'],
        found.map((value) => rowOf(value, flags.origin === true)),
        isTerminal(),
      ),
  )
}

interface FoundValue {
  document: ShownValue
  text: string
}

function shownValue(file: FileName, { path, value, text, origin }: ShownSetting): FoundValue {
  const place = origin === null ? 'default' : `${origin.file}:${origin.line}`
  return { document: { file, key: path, value, origin: place }, text }
}

/** As keys are named everywhere: those of sternpost.yaml alone, the others behind the name of their file. */
function fullKey({ document: { file, key } }: FoundValue): string {
  return nameOf(file, key)
}

function nameOf(file: FileName, key: string): string {
  return file === 'sternpost' || key.startsWith(`${file}.`) ? key : `${file}.${key}`
}

function isBelow(key: string, asked: string): boolean {
  return key === asked || key.startsWith(`${asked}.`) || key.startsWith(`${asked}[`)
}

function rowOf(value: FoundValue, hasOrigin: boolean): string[] {
  const row = [fullKey(value), value.text]
  return hasOrigin ? [...row, value.document.origin] : row
}

function docs(key: string, flags: OutputFlags): void {
  const all = FILE_NAMES.flatMap((file) => shippedDocs(SHIPPED_FOLDER, file))
  const nameOfDoc = ({ file, path }: SettingDoc): string => nameOf(file, path)
  const found = all.find((doc) => nameOfDoc(doc) === key)
  if (found === undefined) throw unknownKey(key, all.map(nameOfDoc))
  const document: DocumentedKey = {
    file: found.file,
    key: found.path,
    text: found.text,
    type: typeText(found.file, found.path),
    default: found.shipped === null ? null : found.value,
    takes_effect: followsReload(found.file, found.path) ? 'reload' : 'restart',
  }
  printResult(flags, document, () => docsReport(document, key, found.shipped))
  const inner = all.filter((doc) => isBelow(nameOfDoc(doc), key) && doc !== found)
  if (inner.length > 0) printNote(flags, `Keys below it: ${inner.map((doc) => printable(nameOfDoc(doc))).join(', ')}`)
}

function docsReport(document: DocumentedKey, key: string, shipped: string | null): string {
  const { text, type, takes_effect: takesEffect, file } = document
  return sheetText(key, [
    ['what', text],
    ['type', type],
    ['default', shipped],
    ['file', `${file}.yaml`],
    ['changes', takesEffect === 'restart' ? 'take effect at the next start' : 'take effect at sternpost reload'],
  ])
}

function unknownKey(key: string, known: readonly string[]): Error {
  const meant = nearestName(key, known)
  const sections = [...new Set(known.map((name) => name.split('.')[0] ?? name))]
  const fix = meant === null ? `there are ${sections.join(', ')}` : `did you mean ${meant}?`
  return misuse(`no key "${key}"; ${fix}`)
}
