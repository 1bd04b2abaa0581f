/**
 * `sternpost restore`: puts a backup or a snapshot in the place of the database of a stopped server (systemd/README.md
 * "Restore"). The database that is there is moved aside, never deleted; without --yes nothing is done.
 */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { toUnixSeconds } from '../../base/clock.ts'
import { EXIT } from '../../base/errors.ts'
import { restoreBackup, type RestoreSummary } from '../../store/open/offline.ts'
import { dataLocation, withBackupErrors, type LocationFlags } from '../shared/data-location.ts'
import { localTime, printNote, printResult, sheetText, type OutputFlags } from '../shared/print.ts'
import { progressLine } from '../shared/print.ts'
import { CONFIG_FLAG } from '../shared/verb.ts'

type RestoreFlags = OutputFlags & LocationFlags & { keepAllowance?: boolean; yes?: boolean }

export function addRestoreCommand(program: Command): void {
  program
    .command('restore <file>')
    .description('put a backup in the place of the database, with the server stopped; restored mail is held')
    .option(...CONFIG_FLAG)
    .option('--keep-allowance', "today's warmup allowance stays as it was in the backup")
    .option('--yes', 'also where there is a database: it is moved aside')
    .option('--json', 'print JSON')
    .option('--quiet', 'print the result alone')
    .addHelpText(
      'after',
      '\nExample:\n  systemctl stop sternpost.socket sternpost\n' +
        '  sternpost restore /mnt/backups/sternpost-20261121T031700Z-10.tar --yes',
    )
    .action(restore)
}

function restore(file: string, flags: RestoreFlags): void {
  const location = dataLocation(flags)
  const present = join(location.folder, 'sternpost.db')
  if (existsSync(present) && flags.yes !== true) {
    printNote(flags, `There is a database: ${present}. It would be moved aside; what came since is in no backup.`)
    printNote(flags, `Nothing is changed yet. Do it with: sternpost restore ${file} --yes`)
    process.exitCode = EXIT.usage
    return
  }
  const line = progressLine(flags)
  const now = Date.now()
  const keepsAllowance = flags.keepAllowance === true
  const summary = withBackupErrors(
    () => restoreBackup({ file: resolve(file), location, now, keepsAllowance, onStage: (stage) => line.show(stage) }),
    () => line.end(),
  )
  const document = {
    mark: toUnixSeconds(summary.mark),
    from_schema: summary.fromSchema,
    schema: summary.schema,
    held: summary.held,
    webhook_deliveries: summary.webhookDeliveries,
    warming_ips: summary.warmingIps,
    counts: summary.counts,
    moved_to: summary.movedTo,
    configuration: summary.configuration,
  }
  printResult(flags, document, () => summaryText(summary, location.folder))
  const { held } = summary
  if (held === 0) return
  printNote(
    flags,
    `${held} messages are held: they may have been sent since. Start the server, then decide:
  sternpost queue list --held
  sternpost queue release --all --yes                                       send them
  sternpost queue drop --held --accepted-before ${new Date(now).toISOString()} --yes   do not`,
  )
}

function summaryText(summary: RestoreSummary, folder: string): string {
  const { counts, warmingIps, movedTo, configuration, fromSchema, schema } = summary
  return sheetText(`${folder}  restored, as of ${localTime(toUnixSeconds(summary.mark))}`, [
    ['messages', `${counts.messages}, ${summary.held} of them undelivered and held`],
    ['domains', String(counts.domains)],
    ['API keys', String(counts.api_keys)],
    ['webhooks', `${counts.webhook_endpoints}, ${summary.webhookDeliveries} deliveries due`],
    ['suppressions', String(counts.suppressions)],
    ['idempotency keys', String(counts.idempotency_keys)],
    ['warmup', warmingIps === 0 ? null : `the allowance of today counts as used on ${warmingIps} IPs, until 00:00 UTC`],
    ['schema', fromSchema === schema ? null : `migrated from ${fromSchema} to ${schema}`],
    ['before', movedTo === null ? null : `what was there is in ${movedTo}`],
    ['configuration', configuration === null ? null : `that of the backup is in ${configuration}; yours is as it was`],
  ])
}
