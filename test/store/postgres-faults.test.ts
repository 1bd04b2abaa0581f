/**
 * Every fault of PostgreSQL or the way to it has a right answer: what was answered is stored, what was refused is not,
 * and nothing happens twice. store/README.md "A server that does not answer".
 */
import t, { type Test } from 'tap'
import { ServiceError } from '../../src/base/errors.ts'
import { startPostgres, skipWithoutPostgres, type PostgresCluster } from '../support/postgres-cluster.ts'
import { startPostgresProxy, type CommitFate, type PostgresProxy } from '../support/postgres-proxy.ts'
import { randomSource } from '../support/random-source.ts'
import { until } from '../support/until.ts'
import { openTestStore, type OpenedStore } from './sqlite-support.ts'
import { postgresLocation } from './postgres-support.ts'
import { acceptOne, newMessage, NOW } from './store-samples.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const CUTS = IS_FULL ? 1_000 : 40
const CLIENTS = 4

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const cluster = await startPostgres(t)
  const like = await cluster.createDatabase()
  const { store } = await openTestStore(postgresLocation(cluster.url(like)))
  await store.close()
  await t.test('a connection that is cut around a commit', (t) => cutCommits(t, cluster, like))
}

interface Bed extends OpenedStore {
  database: string
  proxy: PostgresProxy
}

async function openBed(
  t: Test,
  cluster: PostgresCluster,
  like: string,
  rules: Parameters<typeof startPostgresProxy>[1] = {},
): Promise<Bed> {
  const database = await cluster.createDatabase(like)
  const proxy = await startPostgresProxy(cluster.port, rules)
  const opened = await openTestStore(postgresLocation(cluster.url(database, proxy.port)))
  t.teardown(async () => {
    await opened.store.close().catch(() => undefined)
    await proxy.close()
  })
  await opened.store.beginEpoch(NOW, NOW)
  return { ...opened, database, proxy }
}

/** `accepted`: the answer; otherwise it was refused as it should be. */
async function tryToAccept(t: Test, { store }: Pick<Bed, 'store'>, to: string): Promise<boolean> {
  try {
    await acceptOne(store, {}, { to: { ...newMessage().to, address: to } })
    return true
  } catch (thrown) {
    if (!(thrown instanceof ServiceError) || thrown.code !== 'unavailable') t.error(thrown)
    return false
  }
}

async function storedRecipients(cluster: PostgresCluster, database: string): Promise<string[]> {
  const rows = await cluster.query('select recipient from messages', database)
  return rows.map(({ recipient }) => String(recipient))
}

async function cutCommits(t: Test, cluster: PostgresCluster, like: string): Promise<void> {
  const random = randomSource(24)
  const fates: CommitFate[] = ['cut before', 'cut after', 'cut at once']
  let isCutting = false
  let cuts = 0
  const bed = await openBed(t, cluster, like, {
    fateOf() {
      if (!isCutting || random.integer(3) > 0) return 'pass'
      return fates[cuts++ % fates.length] ?? 'pass'
    },
  })
  isCutting = true
  const answers = new Map<string, boolean>()
  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, client) => {
      for (let number = 0; cuts < CUTS; number += 1) {
        const to = `reader-${client}-${number}@dest.test`
        answers.set(to, await tryToAccept(t, bed, to))
      }
    }),
  )
  isCutting = false
  await until('it accepts again', () => tryToAccept(t, bed, 'last@dest.test'))
  answers.set('last@dest.test', true)
  const stored = await storedRecipients(cluster, bed.database)
  t.same(stored.toSorted(), [...answers].flatMap(([to, isAccepted]) => (isAccepted ? [to] : [])).toSorted())
  t.comment(`${cuts} cuts; ${stored.length} stored of ${answers.size} asked`)
}
