/**
 * The files of the database are removed or replaced while it is open, or are not there at the next start: nothing is
 * answered that would not be found again (store/README.md "Full disk").
 */
import { existsSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ProcessExit } from '../../src/base/errors.ts'
import { openDatabase } from '../../src/store/sqlite/engine/database.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { acceptOne } from './store-samples.ts'

for (const name of ['sternpost.db', 'sternpost.db-wal']) {
  t.test(`${name} is taken away, replaced, and put back`, async (t) => {
    const location = locationIn(t.testdir({}))
    const { store } = await openTestStore(location)
    t.teardown(() => store.close())
    await acceptOne(store)
    const file = join(location.folder, name)
    renameSync(file, `${file}.away`)
    await t.rejects(acceptOne(store), { code: 'unavailable', details: /removed or replaced/ }, 'away')
    writeFileSync(file, '')
    await t.rejects(acceptOne(store), { code: 'unavailable' }, 'replaced')
    renameSync(`${file}.away`, file)
    await acceptOne(store)
    t.ok(await store.countQueued())
  })
}

t.test('a file in the place of the folder, or of one above it, is the fault of the configuration', async (t) => {
  const location = locationIn(t.testdir({ data: { file: '' } }))
  for (const [name, what] of [
    ['file', 'is a file'],
    ['file/below', 'is below a file'],
  ] as const) {
    const folder = join(location.folder, name)
    const message = new RegExp(`^data_dir: ${folder} ${what}, not a folder. Fix: name another folder`)
    t.throws(() => openDatabase({ ...location, folder }), { message, exitCode: 78 })
  }
})

t.test('a start without the database that was there is refused', async (t) => {
  const location = locationIn(t.testdir({}))
  const file = join(location.folder, 'sternpost.db')
  openDatabase(location).close()
  const refusal = new RegExp(
    `there was data, and the database ${file} is not there: .*sternpost restore FILE.*sternpost\\.made`,
  )
  truncateSync(file)
  t.throws(() => openDatabase(location), { message: refusal, exitCode: 74 }, 'empty')
  rmSync(file)
  t.throws(() => openDatabase(location), ProcessExit, 'gone')
  t.notOk(existsSync(file))
  rmSync(join(location.folder, 'sternpost.made'))
  openDatabase(location).close()
  t.ok(existsSync(file), 'a new one')
})
