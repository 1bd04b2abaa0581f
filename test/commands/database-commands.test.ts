/** `sternpost restore` and `migrate` as an administrator runs them, on the files of a stopped server. */
import { copyFileSync, existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { SCHEMA_VERSION } from '../../src/store/sqlite/engine/migrate.ts'
import { databasePath } from '../../src/store/sqlite/engine/database.ts'
import { writeOldDatabase } from '../store/old-databases.ts'
import { locationIn } from '../store/sqlite-support.ts'
import { sternpost, writeServerFiles } from './command-server.ts'

const OLD_SCHEMA = 8

t.test('a snapshot of before an upgrade goes back by the old program, not by the new one', async (t) => {
  const folder = join(t.testdir({}), 'a b')
  mkdirSync(folder)
  writeServerFiles(folder, '/run/sternpost/admin.sock')
  const location = locationIn(join(folder, 'old'))
  writeOldDatabase(location, OLD_SCHEMA)
  const data = join(folder, 'data')
  mkdirSync(data)
  mkdirSync(join(folder, 'sternpost.d'))
  writeFileSync(join(folder, 'sternpost.d', '10-data.yaml'), JSON.stringify({ version: 1, data_dir: data }))
  const copyAs = (from: number, to: number): string => {
    const path = join(folder, `pre-migration-${from}-${to}.db`)
    copyFileSync(databasePath(location), path)
    return path
  }
  const restore = (...words: string[]) => sternpost(['restore', ...words, '--config', folder])

  const ours = copyAs(OLD_SCHEMA, SCHEMA_VERSION)
  const refused = await restore(ours, '--yes')
  t.match(refused, { code: 64, stdout: '' })
  t.match(refused.stderr, `made before the upgrade from schema ${OLD_SCHEMA}`)
  t.match(refused.stderr, /1 {2}sternpost suppression export --config [^]*> suppressed.csv\n[^]*import suppressed.csv/)
  t.match(refused.stderr, /install the version that was there before[^]*--migrate/)
  t.notOk(existsSync(join(data, 'sternpost.db')), 'nothing is changed')
  const restored = await restore(ours, '--migrate')
  t.match(restored, { code: 0, stdout: /migrated from 8 to / }, 'unless it is asked for')
  t.match(restored.stderr, `sternpost queue release --held --config '${folder}'\n`)
  t.match(restored.stderr, /sternpost queue drop --held --accepted-before \S+Z --config /)
  t.notMatch(restored.stderr, '--yes', 'the number is seen first')
  t.notMatch(restored.stderr, 'held before')

  const asked = await restore(ours, '--migrate', '--keep-allowance')
  t.match(asked, { code: 64, stdout: '' })
  t.match(asked.stderr, /revoked keys of since then come along[^]*suspended IPs send/)
  t.match(
    asked.stderr,
    `Do it with: sternpost restore '${ours}' --keep-allowance --migrate --yes --config '${folder}'\n`,
  )
  const missing = join(folder, 'missing.tar')
  t.match(await restore(missing), { code: 74, stderr: `${missing}: there is no such file.` }, 'before any consent')
  const later = copyAs(OLD_SCHEMA, SCHEMA_VERSION + 1)
  const present = new Sqlite(join(data, 'sternpost.db'))
  present.pragma(`user_version = ${SCHEMA_VERSION + 1}`)
  present.close()
  const back = await restore(later, '--yes')
  t.match(back, { code: 0 }, 'the upgrade of a later program: this one is the way back')
  t.match(back.stdout, /since the backup are only in \S.*before-restore-\S+, of schema \d+\n/)
  t.match(back.stdout, /API keys .*, also any that was revoked since the backup\n/)
  const [, aside = ''] = /what was there is in (.+)/.exec(back.stdout) ?? []
  const newer = await restore(join(aside, 'sternpost.db'), '--yes')
  t.match(newer, {
    code: 78,
    stderr: `${aside}/sternpost.db has schema version ${SCHEMA_VERSION + 1}, this program knows`,
  })
  const checked = await sternpost(['migrate', '--to', 'postgres', '--check', '--config', folder])
  t.match(checked, { code: 64, stderr: /--check says nothing of a move/ })
  const storage = { engine: 'postgres', url: { file: join(folder, 'url') } }
  writeFileSync(storage.url.file, 'postgres://sternpost@127.0.0.1/sternpost', { mode: 0o600 })
  writeFileSync(join(folder, 'sternpost.d', '20-postgres.yaml'), JSON.stringify({ version: 1, storage }))
  const elsewhere = await sternpost(['migrate', '--check', '--config', folder])
  t.match(elsewhere, { code: 0, stdout: /in PostgreSQL: a start migrates it/ }, 'an upgrade goes on')
})

t.test('what a migration makes is for nobody else, whatever the umask', async (t) => {
  const folder = t.testdir({})
  writeServerFiles(folder, '/run/sternpost/admin.sock')
  const data = join(folder, 'data')
  mkdirSync(join(folder, 'sternpost.d'))
  writeFileSync(join(folder, 'sternpost.d', '10-data.yaml'), JSON.stringify({ version: 1, data_dir: data }))
  writeOldDatabase(locationIn(folder), OLD_SCHEMA)
  t.match(await sternpost(['migrate', '--config', folder]), { code: 0, stdout: /Migrated from schema 8/ })
  const { mode } = statSync(join(data, `pre-migration-${OLD_SCHEMA}-${SCHEMA_VERSION}.db`))
  t.equal(mode & 0o077, 0)
})
