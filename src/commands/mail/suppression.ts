/**
 * `sternpost suppression`: the addresses that nothing is sent to (http/README.md "Suppressions", commands/README.md
 * "The command line").
 *
 * `export` prints CSV that `import` takes: what one server knows can be brought to another. Reason and scope travel
 * along; when an entry was made does not. `remove` shows the entries first and does nothing without --yes.
 */
import type { SuppressionJson } from '../../api/suppression.ts'
import { statSync } from 'node:fs'
import { Option, type Command } from 'commander'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { callServer, listFromServer, pagesFromServer, sendCsv, withQuery, type Query } from '../shared/api-client.ts'
import { csvPieces } from './csv-pieces.ts'
import { countFlag, timeFlag } from '../shared/flag-values.ts'
import { importPieces } from './import-csv.ts'
import { isTerminal, localTime, printable, printNote, printPiece, printResult, tableText } from '../shared/print.ts'
import { progressBar, progressLine } from '../shared/progress-line.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, isConfirmed, readAnswer, type ConsentFlags, type VerbFlags } from '../shared/verb.ts'

interface FilterFlags extends VerbFlags {
  email?: string
  reason?: string
  scope?: string
  since?: string
}

const REASONS = ['hard_bounce', 'complaint', 'unsubscribe', 'manual']
const PATH = '/v1/suppressions'

export function addSuppressionCommands(program: Command): void {
  const suppression = program.command('suppression').description('addresses that nothing is sent to')
  addFilters(
    addVerb(suppression, {
      words: 'list',
      description: 'list the entries, newest first',
      example: 'sternpost suppression list --reason complaint --since 30d',
    }),
  )
    .option('--limit <count>', 'at most so many', '50')
    .action(list)
  addVerb(suppression, {
    words: 'add <email>',
    description: 'send nothing to an address any more',
    example: 'sternpost suppression add ada@example.net',
  })
    .option('--scope <scope>', 'all, or the name of a list', 'all')
    .action(add)
  addVerb(suppression, {
    words: 'remove <email>',
    description: 'send to an address again',
    example: 'sternpost suppression remove ada@example.net --yes',
  })
    .option('--scope <scope>', 'of this scope alone: all, or the name of a list (default: every scope)')
    .option('--yes', 'do it')
    .action(remove)
  addVerb(suppression, {
    words: 'import <file>',
    description: 'add the addresses of a CSV file with the header line email[,reason][,scope]; of any size',
    example: 'sternpost suppression import unsubscribed.csv',
  }).action(importFile)
  addFilters(
    addVerb(suppression, {
      words: 'export',
      description: 'print all entries as CSV that `suppression import` takes',
      example: 'sternpost suppression export > suppressed.csv',
    }),
  ).action(exportAll)
}

function addFilters(verb: Command): Command {
  return verb
    .option('--email <address>', 'of this address')
    .addOption(new Option('--reason <reason>', 'for this reason').choices(REASONS))
    .option('--scope <scope>', 'of this scope: all, or the name of a list')
    .option('--since <time>', 'added since then: 24h, 2026-11-21, 2026-11-21T12:00')
}

function queryOf({ email, reason, scope, since }: FilterFlags): Query {
  return { email, reason, scope, since: since === undefined ? undefined : timeFlag('--since', since) }
}

async function list(flags: FilterFlags & { limit: string }): Promise<void> {
  const most = countFlag('--limit', flags.limit)
  const found: SuppressionJson[] = []
  for await (const page of pagesFromServer(serverAddress(flags), PATH, queryOf(flags))) {
    found.push(...page.map(readSuppression))
    if (found.length > most) break
  }
  const shown = found.slice(0, most)
  printResult(flags, shown, () => tableText(HEADS, shown.map(rowOf), isTerminal()))
  if (found.length === 0) printNote(flags, 'No such entry.')
  if (found.length > most) printNote(flags, `There are more than these ${most}. All: sternpost suppression export`)
}

async function add(email: string, flags: VerbFlags & { scope: string }): Promise<void> {
  const body = { email, reason: 'manual', scope: flags.scope }
  const added = readSuppression(await callServer(serverAddress(flags), { method: 'POST', path: PATH, body }))
  const { email: address, reason, scope, created_at: createdAt } = added
  const text = `${address} is suppressed (${reason}, scope ${scope}) since ${localTime(createdAt)}`
  printResult(flags, added, () => `${printable(text)}\n`)
}

async function remove(email: string, flags: ConsentFlags & { scope?: string }): Promise<void> {
  const server = serverAddress(flags)
  const { scope } = flags
  const entries = (await listFromServer(server, PATH, { email, scope })).map(readSuppression)
  if (entries.length === 0) {
    const where = scope === undefined ? '' : ` with scope ${scope}`
    throw new ProcessExit(EXIT.failed, `sternpost: ${printable(email)} is not suppressed${where}.`)
  }
  const scopes = entries.map((entry) => `${entry.scope} (${entry.reason})`).join(', ')
  const would = {
    document: entries,
    text: printable(`${email}: ${countOf(entries.length)} would be removed: ${scopes}`),
    command: `sternpost suppression remove ${email}${scope === undefined ? '' : ` --scope ${scope}`}`,
  }
  if (!isConfirmed(flags, would)) return
  const path = withQuery(`${PATH}/${encodeURIComponent(email)}`, { scope })
  const removed = readAnswer<{ email: string; deleted: number }>(
    await callServer(server, { method: 'DELETE', path }),
    'email',
    'deleted',
  )
  printResult(flags, removed, () => `${printable(removed.email)}: ${countOf(removed.deleted)} removed\n`)
}

function countOf(entries: number): string {
  return entries === 1 ? '1 entry' : `${entries} entries`
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
  await printPiece(isJson ? '[' : 'email,reason,scope\n')
  for await (const page of pagesFromServer(serverAddress(flags), PATH, queryOf(flags))) {
    const entries = page.map(readSuppression)
    const lines = entries.map(({ email, reason, scope }) => `${[email, reason, scope].map(csvField).join(',')}\n`)
    const documents = entries.map((entry) => JSON.stringify(entry)).join(',')
    await printPiece(isJson ? `${isFirst ? '' : ','}${documents}` : lines.join(''))
    isFirst = entries.length === 0 && isFirst
  }
  if (isJson) await printPiece(']\n')
}

/** RFC 4180 §2: in quotes where it holds a comma, a quote or a line end. */
function csvField(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

function readSuppression(entry: unknown): SuppressionJson {
  return readAnswer<SuppressionJson>(entry, 'email', 'reason', 'scope')
}

const HEADS = ['ADDED', 'EMAIL', 'REASON', 'SCOPE', 'MESSAGE']

function rowOf({ created_at: createdAt, email, reason, scope, message_id: messageId }: SuppressionJson): string[] {
  return [localTime(createdAt), email, reason, scope, messageId ?? '']
}
