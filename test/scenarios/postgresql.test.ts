/**
 * The whole program on PostgreSQL: mail is accepted, delivered, told and found, through a stop, a kill -9 while a final
 * dot is under way, and starts. What belongs to a file is said to be the server's, and the password of the URL is shown
 * nowhere.
 */
import { execFile } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { scriptedMx } from '../support/scripted-mx.ts'
import { startServe } from '../support/serve-process.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))
const PASSWORD = 'never-shown'
const DEADLINE = 60_000

t.setTimeout(300_000)

interface Told {
  event: string
  data: { message_id: string }
}

t.test('a server on PostgreSQL keeps what it accepted', { skip: skipWithoutPostgres }, async (t) => {
  const cluster = await startPostgres(t)
  const database = await cluster.createDatabase()
  const mx = await scriptedMx({ script: { dot: ['250 ok', 'silence', '250 ok'] } })
  t.teardown(() => mx.close())
  const zone = await startApplianceZone(mx.address)
  t.teardown(() => zone.close())
  const receiver = await webhookReceiver(200)
  t.teardown(() => receiver.close())
  const urlFile = join(t.testdir({}), 'url')
  writeFileSync(urlFile, cluster.url(database).replace('@', `:${PASSWORD}@`), { mode: 0o600 })
  const server = await startServe({
    dnsServer: zone.server,
    deliveryPort: mx.port,
    pools: TWO_IPS,
    settings: { storage: { engine: 'postgres', url: { file: urlFile } }, delivery: { uncertain_retry: '1s' } },
  })
  t.teardown(() => server.remove())
  const command = (...words: string[]): Promise<{ code: number; text: string }> =>
    new Promise((resolve) => {
      const all = [COMMAND, ...words, ...(words[1] === 'verify' ? [] : ['--config', server.configurationFolder])]
      execFile('sh', all, (error, stdout, stderr) => {
        resolve({ code: error === null ? 0 : Number(error.code), text: `${stdout}${stderr}` })
      })
    })
  const api = await prepareSender(server, zone)
  await api.post('/webhooks', { url: receiver.url, events: ['*'] })
  const told = (id: string, kind: string): Told | undefined =>
    receiver.requests
      .map(({ body }) => JSON.parse(body.toString()) as Told)
      .find(({ event, data }) => event === kind && data.message_id === id)
  const send = (subject: string): Promise<string> =>
    api.send({ from: `a@${SENDING_DOMAIN}`, to: 'someone@dest.test', subject, text: 'hello' })

  const first = await send('before the stop')
  await until('the webhook of the first', () => told(first, 'email.delivered'), DEADLINE)

  t.equal(await server.stop(), 0)
  await server.start()
  t.match((await api.get(`/email/${first}`)).body, { data: { state: 'delivered' } }, 'known after a restart')

  const second = await send('at its dot')
  await until('the second waits for the answer to its dot', () => mx.messages.length === 2, DEADLINE)
  await server.kill()
  const copy = await until('sessions have ended', () => cluster.createDatabase(database).catch(() => null), DEADLINE)
  await server.start()
  await until('the webhook of the second', () => told(second, 'email.delivered'), DEADLINE)
  const found = await api.get(`/email/${second}`)
  t.match(found.body, { data: { state: 'delivered', uncertain: true } }, 'marked after the kill')
  t.equal(mx.messages.length, 3)

  const storage = (await api.get('/admin/storage')).body
  t.match(storage, { data: { days_left: null, log_bytes: 0 } })
  t.match(JSON.stringify(storage), /"used_bytes":[1-9]/)
  const backup = await command('backup')
  t.match(backup, { code: 0, text: /the configuration alone[^]*pg_dump/ })
  const archive = /^\S+\.tar$/m.exec(backup.text)?.[0] ?? ''
  t.match(await command('backup', 'verify', archive), { code: 0, text: /whole[^]*which is in PostgreSQL/ })
  t.notMatch(readFileSync(archive).toString('latin1'), PASSWORD, 'not in a backup')
  const shown = await command('config', 'show', 'storage')
  t.match(shown.text, urlFile)
  const status = await command('status')
  t.match(status, { code: 0 })
  const doctor = await command('doctor', 'database')
  t.match(doctor.text, /✖ database {2}fsync is off: a power cut loses mail[^]*✔ database {2}PostgreSQL \d+/)
  const metrics = await (await fetch(server.metricsUrl)).text()
  t.match(metrics, /^sternpost_database_bytes [1-9]/m)
  t.match(metrics, /^sternpost_postgres_connections [1-9]/m)
  t.ok((await server.stop()) === 0)
  for (const words of [['verify'], ['restore', archive, '--yes']]) {
    t.match(await command(...words), { code: 78, text: /the data is in PostgreSQL/ }, words.join(' '))
  }
  t.notOk(existsSync(join(server.databaseFolder, 'sternpost.db')), 'no file of SQLite is made')
  const seen = [shown.text, status.text, backup.text, doctor.text, JSON.stringify(server.log())].join('\n')
  t.notMatch(seen, PASSWORD, 'the password is shown nowhere')
  t.notMatch(
    server.log().filter(({ level }) => level === 'error' || level === 'fatal'),
    [{}],
    'nothing to complain of',
  )

  await cluster.query('update nodes set beat_at = beat_at - 3600000', copy)
  writeFileSync(urlFile, cluster.url(copy))
  await server.start()
  const complaints = server.log().filter(({ level }) => level === 'error')
  t.match(complaints, [{ msg: /older copy.*1 messages are held/ }])
  t.match((await api.get(`/email/${second}`)).body, { data: { state: 'queued' } })
  t.match(await command('queue', 'release', '--held'), { text: /1 message/ })
  const third = await send('new mail flows')
  await until('the webhook of the third', () => told(third, 'email.delivered'), DEADLINE)
  t.equal(mx.messages.length, 4, 'nothing went out again')
  t.match(await command('restore', '--as-of', '1h'), { code: 75, text: /another Sternpost works with this database/ })
  t.equal(await server.stop(), 0)
  const restored = await command('restore', '--as-of', '1h')
  t.match(restored, { code: 0, text: /1 messages are held[^]*sternpost queue release[^]*1 of them were held before/ })
  t.match(await command('restore'), { code: 64, text: /--as-of TIME/ })
  t.match(await command('restore', archive, '--as-of', '1h'), { code: 64, text: /leave out the file/ })
  t.match(await command('restore', '--as-of', '2999-01-01'), { code: 64, text: /in the future/ })
  writeFileSync(urlFile, cluster.url(database))

  await cluster.kill()
  const refused = await server.start().catch((thrown: unknown) => String(thrown))
  t.match(refused, /ended with 75: .*the database cannot be opened/)
  t.notMatch(refused, PASSWORD)

  await cluster.start()
  t.match(await command('migrate', '--to', 'nowhere'), { code: 64, text: /a URL, or a file .*no such file/ })
  t.match(await command('migrate', '--to', 'sqlite'), { code: 0, text: /All data moved[^]*set storage.engine: sqlite/ })
  t.match(await command('migrate', '--to', relative('', urlFile)), { code: 78, text: /has data in its table/ })
  const settings = join(server.configurationFolder, 'sternpost.yaml')
  writeFileSync(settings, readFileSync(settings, 'utf8').replace('"engine": "postgres"', '"engine": "sqlite"'))
  await server.start()
  t.match((await api.get(`/email/${second}`)).body, { data: { state: 'delivered' } }, 'all is in the file now')
})
