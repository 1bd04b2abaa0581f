/**
 * A migration, a backup and a restore that are killed at any moment: what was there is there, or what was to come is; never half
 * of it, and doing it again works.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, existsSync, mkdtempSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { migrateNow, restoreBackup, verifyBackup, verifyDatabase } from '../../src/store/open/offline.ts'
import { databasePath } from '../../src/store/sqlite/engine/database.ts'
import { randomSource } from '../support/random-source.ts'
import { tableSums, writeOldDatabase } from './old-databases.ts'
import { locationIn } from './sqlite-support.ts'
import { NOW } from './store-samples.ts'

const KILLS = process.env['TEST_SCALE'] === 'full' ? 60 : 4
const OPEN = new URL('../../src/store/open/', import.meta.url).href
const PROGRAM = `
const { migrateNow, restoreBackup } = await import(process.argv[1] + 'offline.ts')
const { createBackups } = await import(process.argv[1] + 'backups.ts')
const { what, options } = JSON.parse(process.argv[2])
const logger = { info() {}, warn() {}, error() {} }
const metrics = { backupLastSuccess: { set() {} } }
process.stdout.write('begun')
if (what === 'migrate') migrateNow(options)
if (what === 'restore') restoreBackup({ ...options, keepsAllowance: false, onStage() {} })
if (what === 'backup') {
  const { databaseFile, dir, now } = options
  const settings = () => ({ dir, keep: 3, keptFreeBytes: 0 })
  await createBackups({ databaseFile, configurationFolder: null, settings, clock: { now: () => now }, logger, metrics }).write(null)
}
`

/** Milliseconds until it ended, or null: it was killed before. */
async function runFor(
  what: 'migrate' | 'restore' | 'backup',
  options: object,
  killAfter: number,
): Promise<number | null> {
  const words = ['--input-type=module', '-e', PROGRAM, OPEN, JSON.stringify({ what, options })]
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(child, 'exit')
  await once(child.stdout, 'data')
  const begun = performance.now()
  const timer = setTimeout(() => child.kill('SIGKILL'), killAfter)
  const [code] = await ended
  clearTimeout(timer)
  if (code !== null && code !== 0) throw new Error(`${what} ended with ${code}`)
  return code === 0 ? performance.now() - begun : null
}

const LONG = 60_000
const random = randomSource(7)

t.test('a migration that is killed', async (t) => {
  t.testdir({})
  const duration = (await runFor('migrate', oldDatabase(t, 'whole').location, LONG)) ?? LONG
  let killed = 0
  for (let kill = 0; kill < KILLS; kill += 1) {
    const { location, sums } = oldDatabase(t, `killed-${kill}`)
    if ((await runFor('migrate', location, random.integer(Math.ceil(duration)))) === null) killed += 1
    migrateNow(location)
    t.same(verifyDatabase(location).problems, [])
    t.same(tableSums(location), sums, 'every row is there')
  }
  t.comment(`${killed} of ${KILLS} were killed in time`)
})

t.test('a backup that is killed', async (t) => {
  t.testdir({})
  const { location } = oldDatabase(t, 'running')
  migrateNow(location)
  const dir = join(t.testdirName, 'backups')
  const rows = verifyDatabase(location).counts?.messages
  const options = (index: number) => ({ databaseFile: databasePath(location), dir, now: NOW + index * 1_000 })
  const duration = (await runFor('backup', options(0), LONG)) ?? LONG
  let killed = 0
  for (let kill = 1; kill <= KILLS; kill += 1) {
    if ((await runFor('backup', options(kill), random.integer(Math.ceil(duration)))) === null) killed += 1
    for (const name of readdirSync(dir).filter((name) => !name.startsWith('.'))) {
      const folder = mkdtempSync(join(t.testdirName, 'verified-'))
      t.equal(verifyBackup(join(dir, name), folder, () => {}).manifest?.counts?.messages, rows, `${name} is whole`)
    }
  }
  await runFor('backup', options(KILLS + 1), LONG)
  const names = readdirSync(dir)
  t.ok(names.length <= 3 && names.length > 0, 'the newest are kept')
  t.notOk(names.includes('.backup-unfinished'), 'with nothing left over')
  t.same(verifyDatabase(location).problems, [])
  t.comment(`${killed} of ${KILLS} were killed in time`)
})

t.test('a restore that is killed', async (t) => {
  t.testdir({})
  const { location: source } = oldDatabase(t, 'source')
  const file = join(source.folder, 'copy.db')
  copyFileSync(databasePath(source), file)
  const place = (name: string) => {
    const { location } = oldDatabase(t, name)
    migrateNow(location)
    return location
  }
  const duration = (await runFor('restore', { file, now: NOW, location: place('whole') }, LONG)) ?? LONG
  let killed = 0
  for (let kill = 0; kill < KILLS; kill += 1) {
    const location = place(`restore-${kill}`)
    const before = verifyDatabase(location).counts
    const options = { file, now: NOW, location }
    if ((await runFor('restore', options, random.integer(Math.ceil(duration)))) === null) killed += 1
    if (existsSync(databasePath(location))) {
      t.same(verifyDatabase(location).problems, [], 'what is there is whole')
      t.equal(verifyDatabase(location).counts?.messages, before?.messages)
    }
    restoreBackup({ ...options, now: NOW + 1_000, keepsAllowance: false, onStage() {} })
    t.same(verifyDatabase(location).problems, [], 'and doing it again works')
    t.same(
      readdirSync(location.folder).filter((name) => name.startsWith('.restore-')),
      [],
      'with nothing left over',
    )
  }
  t.comment(`${killed} of ${KILLS} were killed in time`)
})

function oldDatabase(t: Test, name: string) {
  const location = locationIn(join(t.testdirName, name))
  writeOldDatabase(location, 8)
  return { location, sums: tableSums(location) }
}
