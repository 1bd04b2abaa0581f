/**
 * A backup is written while mail comes in and goes out, and is restored on another machine: everything that was
 * answered before its mark is there; what was not delivered is held until somebody decides; new mail flows at once.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { apiClient } from '../support/api-client.ts'
import { startCountingSink } from '../support/counting-sink.ts'
import { startManyDestinations } from '../support/many-destinations.ts'
import { hasEnded, integrityOf, queueRows, stateCounts } from '../support/queue-rows.ts'
import { randomSource } from '../support/random-source.ts'
import { freePort, MASTER_KEY, startServe, writeConfiguration } from '../support/serve-process.ts'
import { startSteadyLoad } from '../support/steady-load.ts'
import { SENDING_DOMAIN, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))
const IS_FULL = process.env['TEST_SCALE'] === 'full'
/** Accepted before the backup begins. */
const BEFORE = IS_FULL ? 20_000 : 400
const LONGEST_ANSWER = 800
const DEADLINE = 240_000
const run = promisify(execFile)

t.setTimeout(0)

async function sternpost(...words: string[]): Promise<Record<string, unknown>> {
  const { stdout } = await run('sh', [COMMAND, ...words, '--json'], { maxBuffer: 64 * 2 ** 20 })
  const document: unknown = JSON.parse(stdout)
  return document as Record<string, unknown>
}

/** Configuration and data of another machine; nothing runs there yet. */
async function otherRoot(t: Test, dnsServer: string) {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-other-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const sink = await startCountingSink()
  t.teardown(() => sink.close())
  const [configuration, dataFolder] = [join(folder, 'config'), join(folder, 'data')]
  mkdirSync(configuration)
  const options = { dnsServer, deliveryPort: sink.port, pools: TWO_IPS, dataFolder }
  writeConfiguration(configuration, { ...options, httpPort: await freePort(), metricsPort: await freePort() })
  return { configuration, dataFolder, sink, options }
}

t.test('every message that was answered before the mark is in the backup, and is held after the restore', async (t) => {
  const random = randomSource(11)
  const first = await startManyDestinations(t, { answerDelayMilliseconds: () => random.integer(LONGEST_ANSWER) })
  const { server, key, domains } = first
  // Of what is accepted first, one message waits for sure.
  const scheduled = await apiClient(server.baseUrl, key).post('/email/send', {
    from: `shop@${SENDING_DOMAIN}`,
    to: 'later@d0.test',
    subject: 'Later',
    text: 'Later',
    send_at: Math.floor(Date.now() / 1_000) + 3_600,
  })
  t.equal(scheduled.status, 200)
  let limit = BEFORE / 2
  const load = startSteadyLoad(t, {
    baseUrl: server.baseUrl,
    key,
    domains,
    batch: 20,
    clients: 2,
    mayPost: (accepted) => accepted < limit,
  })
  t.teardown(() => load.stop())
  await until('a part is accepted', () => load.accepted.size >= limit, DEADLINE)
  const halfAt = Math.ceil(Date.now() / 1_000)
  await until('the next second has begun', () => Date.now() / 1_000 > halfAt + 1)
  limit = BEFORE
  await until('more is accepted', () => load.accepted.size >= limit, DEADLINE)
  limit = Number.POSITIVE_INFINITY
  const before = new Set(load.accepted.keys())
  const written = await sternpost('backup', '--config', server.configurationFolder)
  const during = load.accepted.size - before.size
  await until('mail is taken behind it too', () => load.accepted.size > before.size + 100, DEADLINE)
  await load.stop()
  const file = String(written['path'])
  const { ms, bytes } = written
  t.comment(`${before.size} accepted before, ${during} during ${String(ms)} ms, ${String(bytes)} bytes`)
  t.same(readdirSync(join(server.databaseFolder, 'backups')), [file.split('/').at(-1)], 'nothing else is left')
  const { stdout: names } = await run('tar', ['--list', '--file', file])
  t.same(names.trim().split('\n'), [
    'manifest.json',
    'sternpost.db',
    'config/pools.yaml',
    'config/providers.d/50-fast.yaml',
    'config/sternpost.yaml',
  ])
  t.notOk(readFileSync(file).includes(MASTER_KEY), 'the master key is not in it')
  t.match(await sternpost('backup', 'verify', file), { ok: true, version: /^\d/ })
  t.equal(await server.stop(), 0)

  const other = await otherRoot(t, first.dnsServer)
  const summary = await sternpost('restore', file, '--config', other.configuration)
  t.match(await sternpost('verify', '--config', other.configuration), { ok: true, problems: [] })
  const rows = queueRows(other.dataFolder)
  const there = new Set(rows.map(({ recipient }) => recipient))
  t.same(
    [...before].filter((recipient) => !there.has(recipient)),
    [],
    'all of them are there',
  )
  t.equal(there.size, rows.length)
  const held = rows.filter(({ state }) => state === 'waiting')
  t.same(
    rows.filter(({ state }) => state === 'sending'),
    [],
  )
  t.ok(held.length > 100 && held.every(({ nextAt }) => nextAt > Date.now() + 10 ** 10), `${held.length} are held`)
  t.match(summary, { held: held.length, moved_to: null, counts: { messages: rows.length, domains: 1 } })
  t.same(readdirSync(String(summary['configuration'])).sort(), ['pools.yaml', 'providers.d', 'sternpost.yaml'])

  const second = await startServe(other.options)
  t.teardown(() => second.remove())
  const api = apiClient(second.baseUrl, key)
  const sent = await api.post('/email/send', {
    from: `shop@${SENDING_DOMAIN}`,
    to: 'new@d0.test',
    subject: 'New',
    text: 'It flows',
  })
  t.equal(sent.status, 200)
  await until('new mail flows', () => other.sink.arrivals.has('new@d0.test'), DEADLINE)
  t.equal(other.sink.arrivals.size, 1, 'and nothing else')
  const filter = ['--config', second.configurationFolder]
  const groups = (await sternpost('queue', 'list', '--held', '--by', 'pool', ...filter)) as unknown as {
    held: number
  }[]
  t.equal(
    groups.reduce((sum, group) => sum + group.held, 0),
    held.length,
  )
  const halfTime = (halfAt + 1) * 1_000
  const older = held.filter(({ createdAt }) => createdAt < halfTime)
  t.ok(older.length > 0 && older.length < held.length, `${older.length} of them are of the first half`)
  const time = new Date(halfTime).toISOString()
  const dropped = await sternpost('queue', 'drop', '--held', '--accepted-before', time, '--yes', ...filter)
  const released = await sternpost('queue', 'release', '--all', '--yes', ...filter)
  t.equal(dropped['messages'], older.length, 'those are dropped')
  t.equal(released['messages'], held.length - older.length, 'and the others released')
  await until('what was released is delivered', () => hasEnded(other.dataFolder), DEADLINE)
  t.equal(other.sink.arrivals.size, 1 + Number(released['messages']))
  t.equal(stateCounts(other.dataFolder)['canceled'], older.length)
  t.equal(await second.stop(), 0)
  t.equal(integrityOf(other.dataFolder), 'ok')

  writeFileSync(join(second.configurationFolder, 'master.key'), Buffer.alloc(32, 8).toString('base64'), { mode: 0o600 })
  await second.start()
  const told = second.log().filter(({ msg }) => msg === 'the DKIM key of a domain does not open: its mail waits')
  const expected = [{ domain: SENDING_DOMAIN, fix: /^sternpost domain dkim rotate / }]
  t.match(told, expected, 'with another master key it says so')
  t.equal(
    second.log().filter(({ msg }) => String(msg).startsWith('this database was used with another master key')).length,
    1,
  )
})
