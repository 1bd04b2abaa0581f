/**
 * `sternpost suppression`: the addresses that nothing is sent to (http/README.md "Suppressions", commands/README.md
 * "The command line").
 *
 * `export` prints CSV that `import` takes: what one server knows can be brought to another. Reason, scope and
 * domain travel along; when an entry was made does not. `remove` shows the entries first and does nothing without --yes.
 */
import { statSync } from 'node:fs'
import { Option, type Command } from 'commander'
import * as wire from '../../api/suppression.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { ask, askAll, askPages, sendCsv, withQuery } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { timeFlag } from '../shared/flag-values.ts'
import { printNote, printPiece, printResult, progressLine } from '../shared/print.ts'
import { countOf, jsonText, localTime, printable, progressBar, type Columns } from '../shared/text.ts'
import { serverAddress } from '../shared/server-address.ts'
import {
  addVerb,
  isConfirmed,
  LIMIT_FLAG,
  printFirst,
  type ConsentFlags,
  type Given,
  type LimitFlags,
  type VerbFlags,
} from '../shared/verb.ts'
import { csvPieces, importPieces } from './import-csv.ts'

type FilterFlags = VerbFlags & Given<'email' | 'reason' | 'scope' | 'since'>

const PATH = '/v1/suppressions'

export function addSuppressionCommands(program: Command): void {
  const suppression = program.command('suppression').description('addresses that nothing is sent to')
  withFilters(addVerb(suppression, 'list', 'list the entries, newest first', '--reason complaint --since 30d'))
    .option(...LIMIT_FLAG)
    .action(list)
  addVerb(suppression, 'add <email>', 'send nothing to an address any more', 'ada@example.net')
    .option('--scope <scope>', 'all, or the name of a list', 'all')
    .option('--domain <domain>', 'only mail from this sending domain (default: all)')
    .action(add)
  addVerb(suppression, 'remove <email>', 'send to an address again', 'ada@example.net --yes')
    .option('--scope <scope>', 'of this scope alone: all, or the name of a list (default: every scope)')
    .option('--yes', 'do it')
    .action(remove)
  const imported = 'add the addresses of a CSV file with the header line email[,reason][,scope][,domain]; of any size'
  addVerb(suppression, 'import <file>', imported, 'unsubscribed.csv').action(importFile)
  const exported = 'print all entries as CSV that `suppression import` takes'
  withFilters(addVerb(suppression, 'export', exported, '> suppressed.csv')).action(exportAll)
}

function withFilters(verb: Command): Command {
  return verb
    .option('--email <address>', 'of this address')
    .addOption(new Option('--reason <reason>', 'for this reason').choices(wire.reasonSchema.options))
    .option('--scope <scope>', 'of this scope: all, or the name of a list')
    .option('--since <time>', 'added since then: 24h, 2026-11-21, 2026-11-21T12:00')
}

function pagesOf(flags: FilterFlags): AsyncGenerator<wire.SuppressionJson[]> {
  const { email, reason, scope } = flags
  const since = flags.since === undefined ? undefined : timeFlag('--since', flags.since)
  return askPages(flags, wire.suppressionSchema, PATH, { email, reason, scope, since })
}

const COLUMNS: Columns<wire.SuppressionJson> = {
  ADDED: (entry) => localTime(entry.created_at),
  EMAIL: ({ email }) => email,
  REASON: ({ reason }) => reason,
  SCOPE: ({ scope }) => scope,
  DOMAIN: ({ domain }) => domain,
  MESSAGE: (entry) => entry.message_id,
}

async function list(flags: FilterFlags & LimitFlags): Promise<void> {
  const whenMore = `. All: ${commandText(flags, { verb: 'suppression export' })}`
  await printFirst(flags, COLUMNS, pagesOf(flags), { whenNone: 'No such entry.', whenMore })
}

async function add(email: string, flags: VerbFlags & { scope: string; domain?: string }): Promise<void> {
  const body = { email, reason: 'manual', scope: flags.scope, domain: flags.domain }
  const added = await ask(flags, wire.suppressionSchema, `POST ${PATH}`, body)
  const { email: address, reason, scope, created_at: createdAt } = added
  const text = `${address} is suppressed (${reason}, scope ${scope}) since ${localTime(createdAt)}`
  printResult(flags, added, () => `${printable(text)}\n`)
}

async function remove(email: string, flags: ConsentFlags & { scope?: string }): Promise<void> {
  const server = serverAddress(flags)
  const { scope } = flags
  const entries = await askAll(server, wire.suppressionSchema, PATH, { email, scope })
  if (entries.length === 0) {
    const where = scope === undefined ? '' : ` with scope ${scope}`
    throw new ProcessExit(EXIT.failed, `sternpost: ${printable(email)} is not suppressed${where}.`)
  }
  const scopes = entries.map((entry) => `${entry.scope} (${entry.reason})`).join(', ')
  const would = {
    document: entries,
    text: printable(`${email}: ${countOf(entries.length, 'entry', 'entries')} would be removed: ${scopes}`),
    command: { verb: 'suppression remove', arguments: [email], options: { scope } },
  }
  if (!isConfirmed(flags, would)) return
  const path = withQuery(`${PATH}/${encodeURIComponent(email)}`, { scope })
  const removed = await ask(server, wire.removedSuppressionsSchema, `DELETE ${path}`)
  const count = countOf(removed.deleted, 'entry', 'entries')
  printResult(flags, removed, () => `${printable(removed.email)}: ${count} removed\n`)
}

async function importFile(file: string, flags: VerbFlags): Promise<void> {
  const server = serverAddress(flags)
  const progress = progressLine(flags)
  // A pipe has no size: then the lines alone are told.
  const size = statSync(file).size
  let sent = 0
  const imported = await importPieces({
    pieces: csvPieces(file),
    send(csv) {
      sent += Buffer.byteLength(csv)
      return sendCsv(server, `${PATH}/import`, csv)
    },
    onProgress: (lines) => progress.show(`${size === 0 ? '' : `${progressBar(sent / size)}  `}${lines} lines`),
  }).finally(() => progress.end())
  const { added, existing, rejected, errors } = imported
  printResult(flags, imported, () => `added ${added}, there already ${existing}, refused ${rejected}\n`)
  for (const error of errors) printNote(flags, printable(error))
  if (rejected > errors.length) printNote(flags, `and ${rejected - errors.length} more`)
  if (rejected > 0) process.exitCode = EXIT.failed
}

async function exportAll(flags: FilterFlags): Promise<void> {
  const isJson = flags.json === true
  let isFirst = true
  await printPiece(isJson ? '[' : 'email,reason,scope,domain\n')
  for await (const entries of pagesOf(flags)) {
    const lines = entries.map(
      ({ email, reason, scope, domain }) => `${[email, reason, scope, domain ?? ''].map(csvField).join(',')}\n`,
    )
    const documents = entries.map((entry) => jsonText(entry).trimEnd()).join(',')
    await printPiece(isJson ? `${isFirst ? '' : ','}${documents}` : lines.join(''))
    isFirst = entries.length === 0 && isFirst
  }
  if (isJson) await printPiece(']\n')
}

/**
 * RFC 4180 §2: in quotes where it holds a comma, a quote or a line end. A spreadsheet must not take it for a formula, and
 * an import takes the one apostrophe before it away.
 */
function csvField(text: string): string {
  const harmless = /^'*[=+\-@]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}
