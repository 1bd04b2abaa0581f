/**
 * `sternpost restore`, `migrate` and `verify`: the database of a stopped server, whose place sternpost.yaml says.
 *
 * `restore` puts a backup or a snapshot in its place (systemd/README.md "Restore"): the database that is there is moved
 * aside, never deleted; without --yes nothing is done. `migrate` and `verify` look after its schema and its soundness
 * (store/README.md "Migrations"); `migrate --check` only reads, also beside a running server. For `restore --as-of` see
 * `hold-copy.ts`, for `migrate --to` `move.ts`.
 */
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { snakeFields } from '../../api/names.ts'
import { toUnixSeconds } from '../../base/clock.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { moveTo } from './move.ts'
import type { ServerSettings } from '../../config/settings/server-settings.ts'
import { loadConfiguration } from '../../config/load-configuration.ts'
import * as offline from '../../store/open/offline.ts'
import { BackupError } from '../../store/records/backup-records.ts'
import { fileLocationFor, type SqliteLocation } from '../../store/store-location.ts'
import { commandText, heldMailCommands } from '../shared/command-text.ts'
import { configurationFolder, misuse, SHIPPED_FOLDER } from '../shared/flag-values.ts'
import { printNote, printResult, progressLine, type OutputFlags } from '../shared/print.ts'
import { byteText, linesText, localTime, printable, sheetText } from '../shared/text.ts'
import { addLocalVerb, CONFIG_FLAG, withOutputFlags } from '../shared/verb.ts'

type Flags = OutputFlags & { config?: string }
type RestoreFlags = Flags & { asOf?: string; keepAllowance?: boolean; migrate?: boolean; yes?: boolean }

const OTHERS_AND_GROUP = 0o077
const SINCE_THEN = `Complaints, opt-outs, bounces and revoked keys of since then come along where they can be read. All else is as it was:
people, domains, webhooks and entries of the suppression list that were removed are there again, suspended IPs send.`

export function addRestoreCommand(program: Command): void {
  const verb = program
    .command('restore [file]')
    .description('put a backup in the place of the database, with the server stopped; restored mail is held')
    .option(...CONFIG_FLAG)
    .option('--as-of <time>', 'PostgreSQL, restored by its own tools: hold the mail of this copy, made at this time')
    .option('--keep-allowance', "today's warmup allowance stays as it was in the backup")
    .option('--migrate', 'also a snapshot of before an upgrade: bring it to the schema of this program again')
    .option('--yes', 'also where there is a database: it is moved aside')
  withOutputFlags(verb)
    .addHelpText(
      'after',
      '\nExample:\n  systemctl stop sternpost.socket sternpost\n' +
        '  sternpost restore /mnt/backups/sternpost-20261121T031700Z-10.tar --yes',
    )
    .action(restore)
}

async function restore(file: string | undefined, flags: RestoreFlags): Promise<void> {
  if (flags.asOf !== undefined) {
    if (file !== undefined) throw misuse('--as-of: PostgreSQL restores its database itself; leave out the file')
    const { holdCopy } = await import('./hold-copy.ts')
    return holdCopy(flags.asOf, serverSettings(flags), flags)
  }
  if (file === undefined) throw misuse('name the file of the backup, or for a database in PostgreSQL --as-of TIME')
  const location = dataLocation(flags)
  withBackupErrors(() => offline.factsOfBackup(resolve(file)))
  const before = flags.migrate === true ? null : offline.schemaBeforeUpgrade(file)
  if (before !== null) throw wayBack(file, before, flags)
  const [present] = offline.databaseParts(location.folder)
  if (present !== undefined && flags.yes !== true) {
    printNote(
      flags,
      `${join(location.folder, present)} is there and would be moved aside; what came since is in no backup.`,
    )
    printNote(flags, SINCE_THEN)
    const options = { 'keep-allowance': flags.keepAllowance, migrate: flags.migrate, yes: true }
    const command = commandText(flags, { verb: 'restore', arguments: [file], options })
    printNote(flags, `Nothing is changed yet. Do it with: ${command}`)
    process.exitCode = EXIT.usage
    return
  }
  const line = progressLine(flags)
  const now = Date.now()
  const keepsAllowance = flags.keepAllowance === true
  const summary = withBackupErrors(
    () =>
      offline.restoreBackup({
        file: resolve(file),
        location,
        now,
        keepsAllowance,
        onStage: (stage) => line.show(stage),
      }),
    () => line.end(),
  )
  const document = { ...snakeFields(summary), mark: toUnixSeconds(summary.mark) }
  printResult(flags, document, () => summaryText(summary, location.folder))
  const { held, heldBefore } = summary
  if (held === 0) return
  printNote(flags, `${held} messages are held: they may have been sent since. Start the server, then decide:`)
  const acceptedBefore = new Date(now).toISOString()
  for (const line of heldMailCommands(flags, { acceptedBefore, heldBefore })) printNote(flags, line)
}

/** An upgrade made it so that one can go back: what this program makes of it the old one cannot open. */
function wayBack(file: string, schema: number, flags: Flags): ProcessExit {
  const restored = { verb: 'restore', arguments: [file] }
  const text = `sternpost: ${printable(file)} was made before the upgrade from schema ${schema}: this program would migrate it again.
To go back:
  1  ${commandText(flags, { verb: 'suppression export' })} > suppressed.csv
  2  systemctl stop sternpost.socket sternpost
  3  install the version that was there before
  4  ${commandText(flags, { ...restored, options: { yes: true } })}
  5  systemctl start sternpost.socket sternpost
  6  ${commandText(flags, { verb: 'suppression import', arguments: ['suppressed.csv'] })}
To stay with this version: ${commandText(flags, { ...restored, options: { migrate: true } })}`
  return new ProcessExit(EXIT.usage, text)
}

function summaryText(summary: offline.RestoreSummary, folder: string): string {
  const { counts, warmingIps, movedTo, configuration, fromSchema, schema } = summary
  return sheetText(`${folder}  restored, as of ${localTime(toUnixSeconds(summary.mark))}`, [
    ['messages', `${counts.messages}, ${summary.held} of them undelivered and held`],
    ['domains', String(counts.domains)],
    ['API keys', keysText(summary)],
    ['webhooks', `${counts.webhook_endpoints}, ${summary.webhookDeliveries} deliveries due`],
    ['suppressions', suppressionsText(summary)],
    ['idempotency keys', String(counts.idempotency_keys)],
    ['warmup', warmingIps === 0 ? null : `the allowance of today counts as used on ${warmingIps} IPs, until 00:00 UTC`],
    ['schema', fromSchema === schema ? null : `migrated from ${fromSchema} to ${schema}`],
    ['before', movedTo === null ? null : `what was there is in ${movedTo}`],
    ['configuration', configuration === null ? null : `that of the backup is in ${configuration}; yours is as it was`],
  ])
}

function suppressionsText(summary: offline.RestoreSummary): string {
  const { newerSuppressions, presentSchema, schema, movedTo } = summary
  const { suppressions } = summary.counts
  if (movedTo === null) return String(suppressions)
  if (presentSchema !== null && presentSchema !== schema) {
    return `${suppressions}; complaints and opt-outs since the backup are only in ${movedTo}, of schema ${presentSchema}`
  }
  if (newerSuppressions === null) return `${suppressions}; those of the database that was there could not be read`
  return `${suppressions}, ${newerSuppressions} of them by complaints, opt-outs and bounces since the backup`
}

function keysText({ newerRevocations, counts }: offline.RestoreSummary): string {
  return newerRevocations === null
    ? `${counts.api_keys}, also any that was revoked since the backup`
    : `${counts.api_keys}; ${newerRevocations} that were revoked since the backup stay so`
}

const MIGRATED_AT_START =
  'The data is in PostgreSQL: a start migrates it, without a snapshot (systemd/README.md "PostgreSQL").\n'

export function addMigrateCommands(program: Command): void {
  const migrated = 'bring the database of a stopped server to the schema of this program; a start does the same'
  const verb = addLocalVerb(program, 'migrate', migrated, '--check')
  const check = 'only say what would run, and about how long'
  const moved = 'move all data to `postgres` (storage.url), a URL, a file with one, or back to `sqlite`; mail is held'
  verb.option('--check', check).option('--to <target>', moved)
  withOutputFlags(verb.option(...CONFIG_FLAG)).action(migrate)
  const verified = 'check the database of a stopped server: the file, and what must hold between its rows'
  withOutputFlags(addLocalVerb(program, 'verify', verified).option(...CONFIG_FLAG)).action(verify)
}

async function migrate(flags: Flags & { check?: boolean; to?: string }): Promise<void> {
  if (flags.to !== undefined && flags.check === true) throw misuse('--check says nothing of a move: leave out --to')
  // As a server does: databases and snapshots are for the service alone.
  process.umask(OTHERS_AND_GROUP)
  if (flags.to !== undefined) return moveTo(flags.to, serverSettings(flags), flags)
  const isCheck = flags.check === true
  const { engine } = serverSettings(flags).storage
  if (isCheck && engine !== 'sqlite') return printResult(flags, { engine }, () => MIGRATED_AT_START)
  const location = dataLocation(flags)
  const plan = isCheck ? offline.planMigration(location) : offline.migrateNow(location)
  const document = { ...snakeFields(plan), seconds: Math.ceil(plan.seconds), done: !isCheck }
  printResult(flags, document, () => migrationText(plan, isCheck))
}

function migrationText(
  { found, wanted, migrations, snapshotBytes, seconds }: offline.MigrationPlan,
  isCheck: boolean,
): string {
  if (migrations.length === 0) return `Schema ${found} is that of this program: nothing to migrate.\n`
  const lines = migrations.map((name) => `  ${name}\n`).join('')
  if (!isCheck) return `Migrated from schema ${found} to ${wanted}:\n${lines}`
  const duration = seconds < 1 ? 'less than a second' : `about ${Math.ceil(seconds)} s`
  return `Schema ${found} would become ${wanted}, in ${duration}:\n  a snapshot of ${byteText(snapshotBytes)}\n${lines}`
}

function verify(flags: Flags): void {
  const { folder } = dataLocation(flags)
  const { schema, problems, counts } = offline.verifyDatabase({ folder })
  printResult(flags, { ok: problems.length === 0, schema, problems, counts }, () =>
    problems.length === 0
      ? `The database in ${folder} is sound${counts === null ? `; its schema ${schema} is another one` : ''}.\n`
      : linesText(problems),
  )
  if (problems.length === 0) return
  const restored = commandText(flags, { verb: 'restore', arguments: ['FILE'] })
  printNote(flags, `Fix: ${restored}, with the newest backup that \`sternpost backup verify FILE\` calls whole.`)
  process.exitCode = EXIT.failed
}

/** No secret is needed. Throws ConfigurationError. */
function serverSettings({ config }: Flags): ServerSettings {
  const folder = configurationFolder(config)
  return loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER, offline: true, neededSecrets: 'none' }).server
}

function dataLocation(flags: Flags): SqliteLocation {
  const server = serverSettings(flags)
  if (server.storage.engine !== 'sqlite') {
    const sentence =
      'storage.engine: the data is in PostgreSQL, whose own tools do this (systemd/README.md "PostgreSQL")'
    throw new ProcessExit(EXIT.configuration, sentence)
  }
  return fileLocationFor(server)
}

/** A backup that cannot be used is a disk error for the shell. `end` comes behind the work in any case. */
export function withBackupErrors<Result>(work: () => Result, end?: () => void): Result {
  try {
    return work()
  } catch (thrown) {
    if (!(thrown instanceof BackupError)) throw thrown
    throw new ProcessExit(EXIT.disk, `sternpost: ${thrown.message}.`, { cause: thrown })
  } finally {
    end?.()
  }
}
