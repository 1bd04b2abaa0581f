/**
 * The configuration files against what runs, the age of the newest backup, and the database: is the file sound, and
 * does a commit take as long as a disk needs (health/README.md "Checks": config, backup, database)? Never throws for
 * what is in the folders; errors of the store are findings.
 */
import { existsSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { errorCode, errorText, type Mistake } from '../../base/errors.ts'
import { shellWord } from '../../base/shell-word.ts'
import { checkOf, ageText, byteText, type HealthFinding } from './check.ts'
import { postgresFindings } from './check-postgres.ts'
import type { CheckWorld, FilesNow, DatabaseFacts } from './world.ts'
import type { QuickCheck } from '../../store/open/quick-check.ts'

const CONFIG = checkOf('config', 'The next start reads the files as they are now.')
const BACKUP = checkOf('backup', 'After the loss of the disk only a backup brings queue, domains and keys back.')
const SHOWN_LINES = 3

export const checkConfig = CONFIG.anywhere(async ({ filesNow }) => filesFindings(await filesNow()))

export function filesFindings({ mistakes, changes }: FilesNow): HealthFinding[] {
  const errors = mistakes.filter(({ severity }) => severity === 'error')
  if (errors.length > 0) {
    const seen = `mistakes in the files: ${listed(errors.map(text))}`
    return [CONFIG.fail(null, seen, 'sternpost check')]
  }
  const warnings = mistakes.map((mistake) => CONFIG.warn(mistake.file, place(mistake), 'sternpost check'))
  if (changes === null) return [CONFIG.ok(null, 'the files are valid'), ...warnings]
  if (changes.length === 0) return [CONFIG.ok(null, 'the files are valid, and what runs'), ...warnings]
  const waits = changes.filter((line) => line.trim().startsWith('!'))
  const seen = `not in force yet: ${listed(changes)}`
  const restart = waits.length === 0 ? '' : `, then for ${listed(waits)}: systemctl restart sternpost`
  const fix = `sternpost reload${restart}`
  return [CONFIG.warn(null, seen, fix), ...warnings]
}

function text(mistake: Mistake): string {
  return `${mistake.file}, ${place(mistake)}`
}

function place({ line, column, path, message }: Mistake): string {
  return `line ${line}, column ${column}: ${path === '' ? '' : `${path}: `}${message}`
}

function listed(lines: readonly string[]): string {
  const shown = lines.slice(0, SHOWN_LINES).map((line) => line.trim())
  return [...shown, ...(lines.length > SHOWN_LINES ? [`and ${lines.length - SHOWN_LINES} more`] : [])].join('; ')
}

/** As `sternpost backup` names them: `sternpost-<UTC time>-<schema>.tar` (systemd/README.md "Backup"). */
const BACKUP_NAME = /^sternpost-.+\.tar$/

export const checkBackup = BACKUP.anywhere(async ({ configuration, clock }) => {
  const { backup, health, data_dir: dataFolder } = configuration.server
  const { dir, schedule } = backup
  if (schedule === null) return [BACKUP.skip(null, 'backup.schedule is off')]
  const newest = await newestIn(dir).catch(errorText)
  if (typeof newest === 'string')
    return [BACKUP.warn(dir, `it cannot be looked at: ${newest}`, `ls -ld ${shellWord(dir)}`)]
  if (newest === null) return [await noneYet(dir, dataFolder, clock.now() - health.backup_max_age)]
  const age = clock.now() - newest
  if (age <= health.backup_max_age) return [BACKUP.ok(dir, `the newest is ${ageText(age)} old`)]
  return [BACKUP.fail(dir, `the newest is ${ageText(age)} old`, TAKE_ONE)]
})

const TAKE_ONE = 'sternpost backup; why the nightly one failed: sternpost logs --level warn'

async function newestIn(folder: string): Promise<number | null> {
  const names = await readdir(folder).catch((thrown: unknown): string[] => {
    if (errorCode(thrown) === 'ENOENT') return []
    throw thrown
  })
  const files = names.filter((name) => BACKUP_NAME.test(name)).map((name) => join(folder, name))
  // An old one may go at this moment.
  const found = await Promise.all(files.map((file) => stat(file).catch(() => null)))
  const times = found.flatMap((status) => (status === null ? [] : [status.mtimeMs]))
  return times.length === 0 ? null : Math.max(...times)
}

/** A new server has until its first night. */
async function noneYet(folder: string, dataFolder: string, newSince: number): Promise<HealthFinding> {
  const status = await stat(join(dataFolder, 'sternpost.db')).catch(() => stat(dataFolder).catch(() => null))
  const isNew = status === null || status.birthtimeMs >= newSince
  if (isNew) return BACKUP.ok(folder, 'there is none yet: the server is new')
  return BACKUP.fail(folder, 'there is no backup', TAKE_ONE)
}

const DATABASE = checkOf('database', 'The queue, the keys and all history are in it.')
const SLOW_COMMIT_MILLISECONDS = 500
/** No disk confirms a write in less: one that seems to has only promised it (test/README.md "Faults"). */
const FALSE_COMMIT_MILLISECONDS = 0.02

const checkFile = DATABASE.onServer(async (server, { configuration }) => {
  const [facts, checked] = await Promise.all([server.database(), server.quickCheck()])
  const { data_dir: folder, storage } = configuration.server
  const isGone = !existsSync(join(folder, 'sternpost.db'))
  const found = isGone ? removed(folder) : soundness(checked, facts.bytes)
  return [found, ...commits(facts, folder), ...walSize(facts, storage.wal_max)]
})

export const checkDatabase = DATABASE.anywhere(async (world) => {
  const { engine, url } = world.configuration.server.storage
  if (engine === 'sqlite') return isStopped(world) ? schemaFindings(world) : checkFile.run(world)
  // A store that waits for the server says nothing.
  const facts = await world.server?.database().catch(() => undefined)
  const ofCommits = facts === undefined ? [] : commits(facts, 'the server of PostgreSQL')
  const refusal = refused(world.server?.databaseRefusal() ?? null)
  return [...(await postgresFindings(url ?? '', DATABASE)), ...refusal, ...ofCommits]
})

const fileIn = ({ configuration }: CheckWorld): string => join(configuration.server.data_dir, 'sternpost.db')

/** Where this user sees the file, and no server answers. */
const isStopped = (world: CheckWorld): boolean => world.server === null && existsSync(fileIn(world))

/** Whether this program could work with it: after a downgrade it does not. */
async function schemaFindings(world: CheckWorld): Promise<HealthFinding[]> {
  const { planMigration } = await import('../../store/open/offline.ts')
  try {
    const { found } = planMigration({ folder: world.configuration.server.data_dir })
    if (found === 0) return [DATABASE.fail(null, `${fileIn(world)} is empty`, 'sternpost restore <newest backup>')]
    return [DATABASE.ok(fileIn(world), `its schema is ${found}`)]
  } catch (thrown) {
    const fix = 'what it says; then: systemctl reset-failed sternpost.socket sternpost, and start both'
    return [DATABASE.fail(null, errorText(thrown), fix)]
  }
}

function refused(reason: string | null): HealthFinding[] {
  if (reason === null) return []
  const fix = 'space on the disk of the server of PostgreSQL; or the right that our role lacks: it owns all tables'
  return [DATABASE.fail(null, `what is written is refused: ${reason}`, fix)]
}

/** A stop would end the last hold on the file, with all mail that came behind the newest backup. */
function removed(folder: string): HealthFinding {
  const fix =
    `do not stop the server: it still holds the file as /proc/${process.pid}/fd/<number> ` +
    '(ls -l shows which; it is "(deleted)"): copy it and its -wal to another folder first, then restore the copy: ' +
    'systemd/README.md "Restore"'
  return DATABASE.fail(null, `${join(folder, 'sternpost.db')} was removed while the server runs`, fix)
}

function soundness({ problem, isUnfinished }: QuickCheck, bytes: number): HealthFinding {
  if (problem !== null) {
    // The sockets too: the next connection would start it again.
    const stop = 'systemctl stop sternpost.socket sternpost'
    const fix = `${stop}; sternpost verify; if it says the same: sternpost restore <newest backup>`
    return DATABASE.fail(null, `the quick check says: ${problem}`, fix)
  }
  if (isUnfinished) {
    return DATABASE.skip(null, `the quick check of ${byteText(bytes)} takes too long here: sternpost verify`)
  }
  return DATABASE.ok(null, `the quick check of ${byteText(bytes)} found nothing`)
}

function commits({ commitMilliseconds: mean }: DatabaseFacts, folder: string): HealthFinding[] {
  if (mean === null) return []
  const seen = `a commit takes ${mean.toFixed(2)} ms`
  if (mean > SLOW_COMMIT_MILLISECONDS) {
    return [DATABASE.warn(null, seen, `look at the disk of ${folder}: iostat -x 1; move data_dir to a faster one`)]
  }
  if (mean < FALSE_COMMIT_MILLISECONDS) {
    const fix = `turn off the write cache that lies, or put data_dir on another disk: a power cut would lose mail`
    return [DATABASE.warn(null, `${seen}: this disk confirms before it has written`, fix)]
  }
  return [DATABASE.ok(null, seen)]
}

function walSize({ walBytes }: DatabaseFacts, most: number): HealthFinding[] {
  if (walBytes <= 2 * most) return []
  const fix = 'end what reads the database for long, such as a copy of it that is being made'
  return [DATABASE.warn(null, `the write-ahead log has ${byteText(walBytes)}, more than twice storage.wal_max`, fix)]
}
