/**
 * `sternpost backup`: writes one while the server runs, lists those there are, checks one anywhere (systemd/README.md
 * "Backup").
 */
import type { BackupsJson } from '../../api/server.ts'
import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { toUnixSeconds } from '../../base/clock.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { verifyBackup, type VerifiedBackup } from '../../store/open/offline.ts'
import { callServer } from '../shared/api-client.ts'
import { byteText } from '../shared/byte-text.ts'
import { withBackupErrors } from '../shared/data-location.ts'
import {
  isTerminal,
  localTime,
  printNote,
  printResult,
  sheetText,
  tableText,
  type OutputFlags,
} from '../shared/print.ts'
import { progressBar, progressLine } from '../shared/progress-line.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'

const PATH = '/v1/admin/backups'
const LOOK_EVERY = 250
const STAGE_WIDTH = 'checking'.length

export function addBackupCommands(program: Command): void {
  const backup = addVerb(program, {
    words: 'backup',
    description: 'write a backup of database and configuration while the server runs',
    example: 'sternpost backup --to /mnt/backups',
  })
    .option('--to <dir>', 'folder on the server (default: backup.dir of sternpost.yaml)')
    .enablePositionalOptions()
    .action(write)
  addVerb(backup, { words: 'list', description: 'list the backups', example: 'sternpost backup list' }).action(list)
  backup
    .command('verify <file>')
    .description('check that a backup is whole: checksums, database, rows; needs no server')
    .option('--json', 'print JSON')
    .option('--quiet', 'print the result alone')
    .addHelpText('after', '\nExample:\n  sternpost backup verify /mnt/backups/sternpost-20261121T031700Z-10.tar')
    .action(verify)
}

async function write(flags: VerbFlags & { to?: string }): Promise<void> {
  const server = serverAddress(flags)
  const to = flags.to === undefined ? null : resolve(flags.to)
  await callServer(server, { method: 'POST', path: PATH, body: { to } })
  const line = progressLine(flags)
  for (;;) {
    const answer = await callServer(server, { method: 'GET', path: PATH })
    const { running, last } = readAnswer<BackupsJson>(answer, 'backups')
    if (running === null) {
      line.end()
      return printWritten(flags, last)
    }
    const { stage, done_bytes: done, total_bytes: total } = running
    line.show(`${stage.padEnd(STAGE_WIDTH)} ${total === 0 ? '' : progressBar(done / total)}`)
    await sleep(LOOK_EVERY)
  }
}

function printWritten(flags: VerbFlags, last: BackupsJson['last']): void {
  if (last === null || last.backup === null) {
    const problem = last?.problem ?? 'the server was started anew meanwhile'
    throw new ProcessExit(EXIT.disk, `sternpost: no backup was written: ${problem}. Earlier ones are as they were.`)
  }
  const { backup, ms, messages } = last
  printResult(flags, { ...backup, ms, messages }, () => `${backup.path}\n`)
  printNote(
    flags,
    `${byteText(backup.bytes)}, ${messages} messages, ${((ms ?? 0) / 1_000).toFixed(1)} s. ` +
      'The master key is not in it: keep a copy of that elsewhere.',
  )
}

async function list(flags: VerbFlags): Promise<void> {
  const answer = await callServer(serverAddress(flags), { method: 'GET', path: PATH })
  const { backups } = readAnswer<BackupsJson>(answer, 'backups')
  const rows = backups.map(({ path, bytes, made_at: madeAt, schema }) => [
    path,
    localTime(madeAt),
    byteText(bytes),
    String(schema),
  ])
  printResult(flags, backups, () => tableText(['FILE', 'MADE', 'SIZE', 'SCHEMA'], rows, isTerminal()))
  if (backups.length === 0) printNote(flags, 'There is no backup yet. Write one: sternpost backup')
}

function verify(file: string, flags: OutputFlags): void {
  const line = progressLine(flags)
  const work = workFolder(file)
  let verified: VerifiedBackup
  try {
    verified = withBackupErrors(() => verifyBackup(resolve(file), work, (stage) => line.show(stage)))
  } finally {
    line.end()
    rmSync(work, { recursive: true, force: true })
  }
  const { manifest, mark, schema, databaseBytes } = verified
  const document = {
    file,
    ok: true,
    mark: toUnixSeconds(mark),
    schema,
    database_bytes: databaseBytes,
    version: manifest?.version ?? null,
    counts: manifest?.counts ?? null,
  }
  printResult(flags, document, () =>
    sheetText(`${file}  whole`, [
      ['of', localTime(toUnixSeconds(mark))],
      ['schema', String(schema)],
      ['database', byteText(databaseBytes)],
      ['written by', manifest === null ? null : `Sternpost ${manifest.version} on ${manifest.host}`],
      ...Object.entries(manifest?.counts ?? {}).map(([name, count]): [string, string] => [
        name.replaceAll('_', ' '),
        String(count),
      ]),
      ['not in it', manifest === null ? null : manifest.left_out.join('; ')],
    ]),
  )
}

/** Beside the file, where there is space for one of them; else where temporary files go. */
function workFolder(file: string): string {
  const beside = dirname(resolve(file))
  try {
    accessSync(beside, constants.W_OK)
    return mkdtempSync(join(beside, '.verify-'))
  } catch {
    return mkdtempSync(join(tmpdir(), 'sternpost-verify-'))
  }
}
