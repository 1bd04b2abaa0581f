/**
 * `sternpost migrate` and `sternpost verify`: the schema and the soundness of the database of a stopped server
 * (store/README.md "Migrations"). `migrate --check` only reads, also beside a running one.
 */
import type { Command } from 'commander'
import { EXIT } from '../../base/errors.ts'
import { migrateNow, planMigration, verifyDatabase, type MigrationPlan } from '../../store/open/offline.ts'
import { dataLocation, type LocationFlags } from '../shared/data-location.ts'
import { byteText, linesText, printNote, printResult, type OutputFlags } from '../shared/print.ts'
import { addLocalVerb, CONFIG_FLAG } from '../shared/verb.ts'

type Flags = OutputFlags & LocationFlags

export function addMigrateCommands(program: Command): void {
  const migrated = 'bring the database of a stopped server to the schema of this program; a start does the same'
  const verb = addLocalVerb(program, 'migrate', migrated, '--check')
  withFlags(verb.option('--check', 'only say what would run, and about how long')).action(migrate)
  const verified = 'check the database of a stopped server: the file, and what must hold between its rows'
  withFlags(addLocalVerb(program, 'verify', verified)).action(verify)
}

function withFlags(verb: Command): Command {
  return verb
    .option(...CONFIG_FLAG)
    .option('--json', 'print JSON')
    .option('--quiet', 'print the result alone')
}

function migrate(flags: Flags & { check?: boolean }): void {
  const location = dataLocation(flags)
  const isCheck = flags.check === true
  const plan = isCheck ? planMigration(location) : migrateNow(location)
  const { found, wanted, migrations, snapshotBytes: snapshot_bytes, seconds } = plan
  const document = { found, wanted, migrations, snapshot_bytes, seconds: Math.ceil(seconds), done: !isCheck }
  printResult(flags, document, () => migrationText(plan, isCheck))
}

function migrationText({ found, wanted, migrations, snapshotBytes, seconds }: MigrationPlan, isCheck: boolean): string {
  if (migrations.length === 0) return `Schema ${found} is that of this program: nothing to migrate.\n`
  const lines = migrations.map((name) => `  ${name}\n`).join('')
  if (!isCheck) return `Migrated from schema ${found} to ${wanted}:\n${lines}`
  const duration = seconds < 1 ? 'less than a second' : `about ${Math.ceil(seconds)} s`
  return `Schema ${found} would become ${wanted}, in ${duration}:\n  a snapshot of ${byteText(snapshotBytes)}\n${lines}`
}

function verify(flags: Flags): void {
  const { folder } = dataLocation(flags)
  const { schema, problems, counts } = verifyDatabase({ folder })
  printResult(flags, { ok: problems.length === 0, schema, problems, counts }, () =>
    problems.length === 0
      ? `The database in ${folder} is sound${counts === null ? `; its schema ${schema} is another one` : ''}.\n`
      : linesText(problems),
  )
  if (problems.length === 0) return
  printNote(
    flags,
    'Fix: sternpost restore FILE, with the newest backup that `sternpost backup verify FILE` calls whole.',
  )
  process.exitCode = EXIT.failed
}
