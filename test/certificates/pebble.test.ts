/**
 * Certificates by themselves, against Pebble: issued and served without a restart, renewed while connections are open,
 * told when they fail, and their keys nowhere.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { connect } from 'node:tls'
import { fileURLToPath } from 'node:url'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { apiClient, type ApiClient } from '../support/api-client.ts'
import { skipWithoutPebble } from '../support/pebble.ts'
import { MASTER_KEY } from '../support/serve-process.ts'
import { until } from '../support/until.ts'
import { HOST, isGood, LINKS, openTo, rows, startWorld } from './certificate-world.ts'

const OPEN_CONNECTIONS = 200
const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))

t.setTimeout(600_000)
// Worlds of their own: while one waits for its authority another one works.
t.jobs = 3
/** A new one each time: the runner writes into it. */
const besideOthers = () => ({ skip: skipWithoutPebble, buffered: true })

/** A try that fails is made again after a minute. */
const TWO_TRIES = 240_000

/** By hand: over the API. */
async function renewNow(api: ApiClient, name: string): Promise<void> {
  t.equal((await api.post(`/admin/certificates/${name}/renew`, {})).status, 202)
}

t.test('names get certificates, and clients see them without a restart', besideOthers(), async (t) => {
  const world = await startWorld(t)
  const server = await world.start()
  for (const name of [HOST, LINKS]) {
    t.ok(await until(`a certificate for ${name}`, () => isGood(world, name), TWO_TRIES), name)
  }
  t.match(JSON.stringify(server.log()), /certificate issued/)
  const api = apiClient(server.baseUrl, await server.createKey('admin'))

  await t.test('keys are in no log, no answer and no listing, and sealed in database and backup', async (t) => {
    const command = (...words: string[]): string => execFileSync('sh', [COMMAND, ...words], { encoding: 'utf8' })
    const here = ['--config', server.configurationFolder]
    const backup = JSON.parse(command('backup', ...here, '--json')) as { path: string; sealed_acme_keys: number }
    t.equal(backup.sealed_acme_keys, 3, 'it is marked')
    const paths = ['certificates', 'server', 'backups', 'storage', 'checks', 'audit'].map((path) => `/admin/${path}`)
    const answers = await Promise.all([...paths, '/domains', '/health', '/openapi.json'].map((path) => api.get(path)))
    t.same(new Set(answers.map(({ status }) => status)), new Set([200]))
    const told = [
      JSON.stringify(server.log()),
      JSON.stringify(answers.map(({ body }) => body)),
      command('backup', 'list', ...here),
      command('backup', 'verify', backup.path),
      await (await fetch(server.metricsUrl)).text(),
    ].join('\n')
    const files = [backup.path, ...['', '-wal'].map((end) => `${join(server.databaseFolder, 'sternpost.db')}${end}`)]
    const stored = files.map((file) => readFileSync(file).toString('latin1')).join('\n')

    const keyRing = createKeyRing(Buffer.from(MASTER_KEY, 'base64'))
    const sealed = rows(
      server,
      `select sealed_key as key, 'certificate:' || name as sealedAs from certificates
       union all select sealed_key, 'acme-account:' || directory from acme_accounts`,
    )
    t.equal(sealed.length, 3)
    for (const { key, sealedAs } of sealed) {
      const pem = keyRing.open(key as Buffer, String(sealedAs))
      t.match(pem, /^-----BEGIN PRIVATE KEY-----/, 'it is a key')
      // As one line, as those of the file, and as somebody who packs it once more.
      const lines = pem.split('\n').filter((line) => line !== '' && !line.startsWith('-----'))
      // The third line is of the public half alone: by chance it stands in the certificate like that.
      const shapes = [...lines.slice(0, 2), lines.join(''), Buffer.from(pem).toString('base64').slice(60, 120)]
      const der = Buffer.from(lines.join(''), 'base64')
      t.notOk(shapes.some((shape) => told.includes(shape) || stored.includes(shape)))
      t.notOk(stored.includes(der.toString('latin1').slice(36)))
    }
    t.notMatch(told, /PRIVATE KEY/)
    t.notMatch(stored, /-----BEGIN [A-Z ]*PRIVATE KEY-----/)
  })

  await t.test('doctor prints what inbound TLS may be asked for with', async (t) => {
    const words = [COMMAND, 'doctor', 'tls', '--config', server.configurationFolder]
    const { stdout } = spawnSync('sh', words, { encoding: 'utf8' })
    t.match(stdout, /version: STSv1\nmode: testing\nmx: mail\.sternpost\.test\nmax_age: 604800\n/)
    t.match(stdout, /each renewal has another key[\s\S]+tls\.acme\.keep_key: true/)
    t.notMatch(stdout, /_25\._tcp/, 'no TLSA record that would soon refuse mail')
  })

  await t.test('doctor says that a file is shown in its place', async (t) => {
    const folder = server.configurationFolder
    const [cert_file, key_file] = [join(folder, 'own.pem'), join(folder, 'own.key')]
    const words = `req -x509 -newkey rsa:2048 -nodes -subj /CN=own -addext subjectAltName=DNS:${HOST}`.split(' ')
    execFileSync('openssl', [...words, '-days', '365', '-keyout', key_file, '-out', cert_file], { stdio: 'ignore' })
    const dropIn = join(folder, 'sternpost.d', '50-own.yaml')
    mkdirSync(dirname(dropIn), { recursive: true })
    writeFileSync(dropIn, JSON.stringify({ tls: { certificates: [{ cert_file, key_file }] } }))
    t.equal((await api.post('/admin/reload', {})).status, 200)
    const { stdout } = spawnSync('sh', [COMMAND, 'doctor', 'tls', '--config', folder], { encoding: 'utf8' })
    t.match(
      stdout.replaceAll(/\s+/g, ' '),
      /self-signed.* take its file out of tls\.certificates, then sternpost reload/,
    )
    rmSync(dropIn)
    t.equal((await api.post('/admin/reload', {})).status, 200)
    t.ok(await isGood(world, HOST), 'as it says')
  })

  await t.test('a renewal drops no connection', async (t) => {
    const issuer = await world.pebble.issuer()
    const serial = await isGood(world, HOST)
    const opening = Array.from({ length: OPEN_CONNECTIONS }, () => openTo(world.tlsPort, HOST, issuer))
    const open = (await Promise.all(opening)).filter((socket) => socket !== null)
    t.equal(open.length, OPEN_CONNECTIONS)
    let dropped = 0
    for (const socket of open) socket.on('close', () => (dropped += 1))
    await renewNow(api, HOST)
    await until(
      'another certificate',
      async () => {
        const now = await isGood(world, HOST)
        return now !== null && now !== serial
      },
      TWO_TRIES,
    )
    t.equal(dropped, 0)
    for (const socket of open) socket.destroy()
  })

  await t.test('it is kept over a restart, without asking the authority', async (t) => {
    const serial = await isGood(world, HOST)
    await server.stop()
    await world.pebble.stop()
    const issuerBefore = serial
    await server.start()
    const socket = connect({ host: '127.0.0.1', port: world.tlsPort, servername: HOST, rejectUnauthorized: false })
    await once(socket, 'secureConnect')
    t.equal(socket.getPeerCertificate().serialNumber, issuerBefore)
    socket.destroy()
  })
})

t.test('a proof in a handshake, while others come and go', besideOthers(), async (t) => {
  const world = await startWorld(t, { isTlsAlone: true })
  const server = await world.start()
  t.ok(await until('a certificate', () => isGood(world, HOST), TWO_TRIES))
  t.ok(await until('a certificate', () => isGood(world, LINKS), TWO_TRIES))
  const serial = await isGood(world, HOST)
  await renewNow(apiClient(server.baseUrl, await server.createKey('admin')), HOST)
  let handshakes = 0
  const refusals: string[] = []
  await until(
    'another certificate',
    async () => {
      handshakes += 1
      const now = await isGood(world, HOST, refusals)
      return now !== null && now !== serial
    },
    TWO_TRIES,
  )
  t.strictSame(refusals, [], `nobody but the authority sees a proof: ${handshakes} handshakes`)
  const silent = connect({ host: '127.0.0.1', port: world.tlsPort, servername: HOST, ALPNProtocols: ['acme-tls/1'] })
  const [error] = (await once(silent, 'error')) as [Error]
  t.ok(error, 'and nothing, once it is over')
})

t.test('names of tracked links', besideOthers(), async (t) => {
  const world = await startWorld(t)
  const server = await world.start()
  const api = apiClient(server.baseUrl, await server.createKey('admin'))
  const names = ['one.test', 'two.test']
  for (const domain of names) {
    t.equal((await api.post('/domains', { domain })).status, 201)
  }
  await api.post('/domains', { domain: 'elsewhere.test' })
  const trackingOf = async (domain: string): Promise<{ record: unknown; tls: unknown }> => {
    const { tracking, records } = (await api.get(`/domains/${domain}`)).body['data'] as ShownDomain
    return { record: records.find(({ purpose }) => purpose === 'tracking'), tls: tracking.tls }
  }
  // No check by itself may come before this one: the authority might be quicker than the test.
  world.zone.set('t.one.test', { CNAME: LINKS })
  await api.post('/domains/one.test/verify', {})
  const waiting = await trackingOf('one.test')
  t.match(waiting, {
    record: {
      status: 'pending',
      error: 'the certificate for t.one.test is not there yet',
      hint: `until then tracked links lead to ${LINKS}`,
    },
    tls: 'pending',
  })
  world.zone.set('t.two.test', { CNAME: LINKS })
  await api.post('/domains/two.test/verify', {})
  for (const domain of names) {
    await until(`links of ${domain}`, async () => (await trackingOf(domain)).tls === 'active', TWO_TRIES)
    t.match((await trackingOf(domain)).record, { status: 'verified', error: null, hint: null })
    t.ok(await isGood(world, `t.${domain}`))
  }
  t.equal((await trackingOf('elsewhere.test')).tls, 'pending')
  t.equal(await isGood(world, 't.elsewhere.test'), null)
})

interface ShownDomain {
  tracking: { tls: string }
  records: { purpose: string }[]
}

t.test('what goes wrong is said, and tried again', besideOthers(), async (t) => {
  const world = await startWorld(t, { isResolving: false })
  const server = await world.start()
  const refusals = () =>
    server.log().filter(({ msg, names }) => msg === 'no certificate' && JSON.stringify(names) === `["${HOST}"]`)
  const tryAtOnce = async (): Promise<void> => {
    await server.stop()
    const database = new Sqlite(join(server.databaseFolder, 'sternpost.db'))
    database.prepare('update certificates set next_try_at = 0').run()
    database.close()
    await server.start()
  }
  const first = await until('the refusal', () => refusals()[0])
  t.equal(first['next_try_in_seconds'], 60)
  t.match(
    String(first['problem']),
    /(could not resolve|while resolving) .* Fix: mail\.sternpost\.test must lead to this server, and its port 80/,
  )
  t.equal((await fetch(`http://127.0.0.1:${world.httpPort}/health`)).status, 200, 'the server is up all the same')

  await world.pebble.stop()
  world.zone.set(HOST, { A: ['127.0.0.1'] })
  world.zone.set(LINKS, { A: ['127.0.0.1'] })
  await tryAtOnce()
  const second = await until('an authority that is down', () => refusals()[1])
  t.match(String(second['problem']), /^the authority did not answer: /)
  t.equal(second['next_try_in_seconds'], 300)
  await world.pebble.start()
  await tryAtOnce()
  // A Pebble that was started anew has forgotten the account.
  t.ok(await until('an account that is not known', () => refusals()[2]))
  const run = (...words: string[]) => spawnSync('sh', [COMMAND, ...words], { encoding: 'utf8' })
  const here = ['--config', server.configurationFolder]
  t.match(run('doctor', ...here).stdout, `or, once mended, by: sternpost certificate renew ${HOST}`)
  const advice = /or, once mended, by: sternpost (.*)$/m.exec(run('certificate', 'list', ...here).stderr)?.[1] ?? ''
  t.equal(run(...advice.split(' ')).status, 0, advice)
  t.ok(await until('a certificate', () => isGood(world, HOST), TWO_TRIES))
})
