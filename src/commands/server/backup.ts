/**
 * `sternpost backup`: writes one while the server runs, lists those there are, checks one anywhere (systemd/README.md
 * "Backup").
 */
import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { backupsSchema, type BackupJson, type BackupsJson } from '../../api/server.ts'
import { toUnixSeconds } from '../../base/clock.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { verifyBackup } from '../../store/open/offline.ts'
import { ask, callServer } from '../shared/api-client.ts'
import { withBackupErrors } from './database.ts'
import { commandText } from '../shared/command-text.ts'
import { printList, printNote, printResult, progressLine, type OutputFlags } from '../shared/print.ts'
import { byteText, localTime, sheetText, progressBar, type Columns } from '../shared/text.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addLocalVerb, addVerb, withOutputFlags, type VerbFlags } from '../shared/verb.ts'

const PATH = '/v1/admin/backups'
const LOOK_EVERY = 250
const STAGE_WIDTH = 'checking'.length

export function addBackupCommands(program: Command): void {
  const written = 'write a backup of database and configuration while the server runs'
  const backup = addVerb(program, 'backup', written, '--to /mnt/backups')
    .option('--to <dir>', 'folder on the server (default: backup.dir of sternpost.yaml)')
    .enablePositionalOptions()
    .action(write)
  addVerb(backup, 'list', 'list the backups').action(list)
  const verified = 'check that a backup is whole: checksums, database, rows; needs no server'
  const example = '/mnt/backups/sternpost-20261121T031700Z-10.tar'
  withOutputFlags(addLocalVerb(backup, 'verify <file>', verified, example)).action(verify)
}

async function write(flags: VerbFlags & { to?: string }): Promise<void> {
  const server = serverAddress(flags)
  await callServer(server, `POST ${PATH}`, { body: { to: flags.to === undefined ? null : resolve(flags.to) } })
  const line = progressLine(flags)
  for (;;) {
    const { running, last } = await ask(server, backupsSchema, `GET ${PATH}`)
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
  const held = messages === null ? 'the configuration alone' : `${messages} messages`
  printNote(
    flags,
    `${byteText(backup.bytes)}, ${held}, ${((ms ?? 0) / 1_000).toFixed(1)} s. The master key is not in it: keep a copy of that elsewhere.`,
  )
  if (messages !== null) return
  printNote(
    flags,
    'The data is in PostgreSQL: copy it by pg_dump, or archive its log (systemd/README.md "PostgreSQL").',
  )
}

/** Marks what holds private keys: whoever has it and the master key has them. */
function sealedText(keys: number | null): string | null {
  return keys === null ? null : keys === 0 ? 'none of ACME' : `${keys} of ACME`
}

const COLUMNS: Columns<BackupJson> = {
  FILE: ({ path }) => path,
  MADE: (backup) => localTime(backup.made_at),
  SIZE: ({ bytes }) => byteText(bytes),
  SCHEMA: ({ schema }) => schema,
  'SEALED KEYS': ({ sealed_acme_keys: keys }) => sealedText(keys) ?? '',
}

async function list(flags: VerbFlags): Promise<void> {
  const { backups } = await ask(flags, backupsSchema, `GET ${PATH}`)
  printList(flags, COLUMNS, backups, `There is no backup yet. Write one: ${commandText(flags, { verb: 'backup' })}`)
}

function verify(file: string, flags: OutputFlags): void {
  const line = progressLine(flags)
  const work = workFolder(file)
  const { manifest, mark, schema, databaseBytes } = withBackupErrors(
    () => verifyBackup(resolve(file), work, (stage) => line.show(stage)),
    () => {
      line.end()
      rmSync(work, { recursive: true, force: true })
    },
  )
  const counts = Object.entries(manifest?.counts ?? {})
  const document = {
    file,
    ok: true,
    mark: toUnixSeconds(mark),
    schema,
    database_bytes: databaseBytes,
    version: manifest?.version ?? null,
    counts: manifest?.counts ?? null,
    sealed_acme_keys: manifest?.sealed_acme_keys ?? null,
  }
  printResult(flags, document, () =>
    sheetText(`${file}  whole`, [
      ['of', localTime(toUnixSeconds(mark))],
      ['schema', String(schema)],
      ['database', manifest?.counts === null ? null : byteText(databaseBytes)],
      ['written by', manifest === null ? null : `Sternpost ${manifest.version} on ${manifest.host}`],
      ...counts.map(([name, count]) => [name.replaceAll('_', ' '), String(count)] as const),
      ['sealed keys', sealedText(document.sealed_acme_keys)],
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
