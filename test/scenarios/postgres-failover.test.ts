/**
 * PostgreSQL has a standby that commits wait for. Its primary is killed under load of two nodes, and the standby is
 * promoted: they find it by themselves, nothing that was answered is lost, and what came twice is flagged. Two servers
 * that both take changes are refused. systemd/README.md "PostgreSQL".
 */
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { readDatabaseUrl } from '../../src/config/settings/database-url.ts'
import { postgresFacts } from '../../src/store/open/server-facts.ts'
import { loadAt, settle, timeTo } from '../support/cluster-load.ts'
import { startNodeCluster } from '../support/node-cluster.ts'
import { skipWithoutPostgres, startPostgres, type PostgresCluster } from '../support/postgres-cluster.ts'
import { randomSource } from '../support/random-source.ts'
import { until } from '../support/until.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const FAILOVERS = IS_FULL ? 5 : 1
/** Under load, each. */
const BEFORE = IS_FULL ? 10_000 : 2_000
/** Of a promotion until mail is taken again: each node finds the new primary, and one may have to begin anew. */
const ACCEPTED_WITHIN = IS_FULL ? 20_000 : 60_000
const LONGEST_ANSWER = 200

t.setTimeout(0)

t.test('a standby is promoted under load', { skip: skipWithoutPostgres }, async (t) => {
  for (let failover = 1; failover <= FAILOVERS; failover += 1) await failOver(t, randomSource(failover))
})

async function failOver(t: Test, random: ReturnType<typeof randomSource>): Promise<void> {
  const primary = await startPostgres(t)
  const standby = await startPostgres(t, { primary })
  await primary.query(`alter system set synchronous_standby_names = 'ANY 1 (*)'`)
  await primary.query('select pg_reload_conf()')
  await until('commits wait for it', async () => {
    const rows = await primary.query(`select 1 from pg_stat_replication where sync_state = 'quorum'`)
    return rows.length === 1
  })
  const cluster = await startNodeCluster(t, {
    count: 2,
    postgres: primary,
    urlFor: (database) => urlOfBoth(primary, standby, database),
    answerDelayMilliseconds: () => random.integer(LONGEST_ANSWER),
  })
  const loads = loadAt(t, cluster, cluster.nodes)
  await until('mail is taken', () => loads.every(({ accepted }) => accepted.size > 100))
  await sleep(BEFORE + random.integer(1_000))
  await primary.kill()
  // What was on its way to the standby is there, or will never be.
  await standby.query('select pg_promote()')
  const atPromotion = loads.map(({ accepted }) => accepted.size)
  const keepAlive = setInterval(() => void cluster.nodes.map(startWhereEnded), 500)
  const took = await timeTo('both nodes take mail again', async () =>
    loads.every(({ accepted }, index) => accepted.size > (atPromotion[index] ?? 0)),
  )
  t.ok(took < ACCEPTED_WITHIN, `mail was taken again ${Math.round(took)} ms after the promotion`)
  await sleep(BEFORE)
  clearInterval(keepAlive)
  await settle(t, { ...cluster, postgres: standby }, loads)
  const logged = cluster.nodes.flatMap(({ server }) => server.log().map(({ msg }) => String(msg)))
  t.strictSame(
    logged.filter((text) => text.includes('older copy')),
    [],
    'nobody lacks a commit of its own',
  )
  t.comment(`exit codes: ${cluster.nodes.map(({ server }) => server.exitCode()).join(', ')}`)

  await primary.start()
  const reading = readDatabaseUrl(urlOfBoth(primary, standby, cluster.database))
  const url = reading.ok ? reading.value : ''
  await t.rejects(postgresFacts(url), /both take changes: stop the one that was the primary before/)
  await primary.kill()
  t.equal((await postgresFacts(url)).isStandby, false, 'whichever is first in the URL')
  await Promise.all(cluster.nodes.map(({ server }) => server.stop()))
}

function urlOfBoth(primary: PostgresCluster, standby: PostgresCluster, database: string): string {
  const hosts = [primary, standby].map(({ port }) => `127.0.0.1:${port}`).join(',')
  return `postgres://postgres@${hosts}/${database}?target_session_attrs=read-write`
}

/** As the service manager does. */
const starting = new Set<unknown>()
async function startWhereEnded({ server }: { server: { exitCode(): number | null; start(): Promise<void> } }) {
  if (server.exitCode() === null || starting.has(server)) return
  starting.add(server)
  await server.start().finally(() => starting.delete(server))
}
