/**
 * The configuration files change while the server runs: a bad one changes nothing, by SIGHUP and by `sternpost reload`;
 * a good one is told as a difference and in force at once. config/README.md "Reload".
 */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { dirname, join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { MAIL_CERTIFICATE, MAIL_KEY, OTHER_CERTIFICATE, OTHER_KEY } from '../http/certificates.ts'
import type { ApiClient } from '../support/api-client.ts'
import { BAD_FILES } from '../support/reload-cases.ts'
import { scriptedMx, type MxMessage } from '../support/scripted-mx.ts'
import { freePort, startServe, type ServeOptions, type ServeProcess } from '../support/serve-process.ts'
import { MIB, mountSmallDisk } from '../support/small-disk.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone } from '../support/two-ips.ts'
import { until } from '../support/until.ts'

const COMMAND = join(import.meta.dirname, '../../scripts/sternpost')
const DEADLINE = 120_000
const SPF = 'v=spf1 ip4:127.0.0.0/24 -all'
const DEFAULT_IPS = [
  { address: '127.0.0.11', hostname: 'mta1.sternpost.test', warmed: true },
  { address: '127.0.0.12', hostname: 'mta2.sternpost.test', warmed: true },
]
const LEGACY_IPS = [{ address: '127.0.0.13', hostname: 'mta3.sternpost.test', warmed: true }]
const NEW_IP = { address: '127.0.0.14', hostname: 'mta4.sternpost.test', warmed: true, weight: 1_000 }
const POOLS = {
  version: 1,
  default_pool: 'default',
  pools: { default: { ips: DEFAULT_IPS }, legacy: { ips: LEGACY_IPS } },
}

/** The command asks the server for the same reload: a few of the bad files show it. */
const BY_COMMAND = 2

t.setTimeout(600_000)

t.test('a bad file changes nothing, and the error says where', async (t) => {
  const { server, api, mx, send } = await startScene(t)
  const before = await ipsOf(api)
  for (const [index, { what, file, text, says }] of BAD_FILES.entries()) {
    const path = join(server.configurationFolder, file)
    const good = file === 'pools.yaml' ? readFileSync(path) : undefined
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
    const told = await reloadBySignal(server)
    t.equal(told['msg'], 'configuration not reloaded; the old one stays in force', what)
    t.ok(String(told['problem']).includes(`${path}:${says}`), `${what}, by SIGHUP: ${told['problem']}`)
    t.equal(await lastReload(server), 0, what)
    if (index < BY_COMMAND) {
      const { code, output } = await sternpost(server, 'reload')
      t.equal(code, 78, what)
      t.ok(output.includes(`${path}:${says}`), `${what}, by sternpost reload: ${output}`)
    }
    if (good === undefined) rmSync(path)
    else writeFileSync(path, good)
  }
  t.strictSame(await ipsOf(api), before, 'the IPs are as they were')
  const id = await send('after@dest.test')
  await until('mail goes on', async () => (await stateOf(api, id)) === 'delivered', DEADLINE)
  t.equal(mx.messages.length, 1)
  t.equal((await sternpost(server, 'reload')).code, 0)
  t.equal(await lastReload(server), 1)
})

t.test('an IP that a reload brings is our own to webhooks too', async (t) => {
  const { server, api } = await startScene(t, { settings: { webhooks: { allow_private_addresses: false } } })
  const register = (): ReturnType<ApiClient['post']> => api.post('/webhooks', { url: 'http://8.8.8.14/' })
  t.equal((await register()).status, 201)
  const outer = { ...NEW_IP, address: '8.8.8.14', source: NEW_IP.address }
  write(server, 'pools.yaml', { ...POOLS, pools: { ...POOLS.pools, default: { ips: [...DEFAULT_IPS, outer] } } })
  t.equal((await sternpost(server, 'reload')).code, 0)
  t.match(await register(), { status: 422, body: { error: { details: /must not lead to our network/ } } })
})

t.test('a good one is told and in force; a dry run only tells', async (t) => {
  const { server, api, mx, send, setDeferring } = await startScene(t)
  setDeferring(true)
  const queued = await Promise.all(['a', 'b', 'c'].map((name) => send(`${name}@dest.test`, { ip_pool: 'legacy' })))
  await until(
    'the mail of the pool waits',
    async () => (await statesOf(api, queued)).every((s) => s === 'deferred'),
    DEADLINE,
  )
  const strange = await send('strange@dest.test')
  await until('no rule knows these words', async () => (await categoryOf(api, strange)) === 'unknown', DEADLINE)

  const before = await ipsOf(api)
  const [first, second] = DEFAULT_IPS
  write(server, 'pools.yaml', { ...POOLS, pools: { default: { ips: [{ ...first, weight: 5 }, second, NEW_IP] } } })
  write(server, 'providers.d/90-limits.yaml', { default: { messages_per_connection: 1 } })
  write(server, 'bounces.d/90-own.yaml', {
    rules: [{ id: 'strange', match: 'peculiar words', category: 'moved', example: '550 peculiar words' }],
  })
  const DIFFERENCE = [
    /^ {2}- pool legacy/,
    /^ {2}~ ip 127\.0\.0\.11 weight 100 -> 5$/,
    /^ {2}\+ ip 127\.0\.0\.14 in default/,
    /^ {2}- ip 127\.0\.0\.13 of legacy$/,
    /^ {2}~ providers\.default\.messages_per_connection 100 -> 1$/,
  ]
  const dry = await sternpost(server, 'reload', '--dry-run')
  t.equal(dry.code, 0)
  for (const line of DIFFERENCE) t.ok(hasLine(dry.output, line), `${line} in ${dry.output}`)
  t.strictSame(await ipsOf(api), before, 'a dry run changes nothing')

  setDeferring(false)
  const reloaded = await sternpost(server, 'reload')
  t.equal(reloaded.code, 0)
  t.match(reloaded.output, /^reloaded, revision 2 \(/)
  for (const line of DIFFERENCE) t.ok(hasLine(reloaded.output, line), `${line} in ${reloaded.output}`)
  t.ok(hasLine(reloaded.output, /^ {2}- pool legacy \(3 queued messages moved to default\)$/))
  t.equal(await lastReload(server), 1)
  const ips = await ipsOf(api)
  t.match(
    ips.find(({ ip }) => ip === '127.0.0.11'),
    { pool: 'default', weight: 5 },
  )
  t.match(
    ips.find(({ ip }) => ip === '127.0.0.14'),
    { pool: 'default', status: 'warmed' },
  )

  for (const id of queued) t.equal((await api.post(`/email/${id}/retry`, {})).status, 200)
  await until(
    'the mail of the removed pool leaves',
    async () => (await statesOf(api, queued)).every((state) => state === 'delivered'),
    DEADLINE,
  )
  const fromNew = await Promise.all(Array.from({ length: 30 }, (_, index) => send(`reader-${index}@dest.test`)))
  await until('mail goes out', async () => (await statesOf(api, fromNew)).every((s) => s === 'delivered'), DEADLINE)
  const sources = mx.messages.map(({ connection }) => connection.remoteAddress)
  t.notOk(sources.includes('127.0.0.13'), 'nothing leaves from the IP that is gone')
  t.ok(sources.filter((source) => source === '127.0.0.14').length > 10, 'the new IP sends')
  t.equal(
    new Set(mx.messages.map(({ connection }: MxMessage) => connection)).size,
    mx.messages.length,
    'one message for each connection',
  )
  const again = await send('strange@dest.test')
  await until('the new rule knows the words', async () => (await categoryOf(api, again)) === 'moved', DEADLINE)
})

t.test('signals in quick succession end with the files as they are', async (t) => {
  const { server, api } = await startScene(t)
  const [first, second] = DEFAULT_IPS
  for (let weight = 1; weight <= 20; weight += 1) {
    const ips = [{ ...first, weight }, second]
    write(server, 'pools.yaml', { ...POOLS, pools: { ...POOLS.pools, default: { ips } } })
    process.kill(server.processId, 'SIGHUP')
  }
  await until('the last one is in force', async () => (await ipsOf(api)).some(({ weight }) => weight === 20), DEADLINE)
  t.equal(await lastReload(server), 1)
  t.ok(reloads(server).length < 20, `${reloads(server).length} reloads for 20 signals`)
})

t.test('certificates are read again: all doors use the new ones, or none does', async (t) => {
  const files = {
    'mail.pem': MAIL_CERTIFICATE,
    'mail.key': MAIL_KEY,
    'other.pem': OTHER_CERTIFICATE,
    'other.key': OTHER_KEY,
  }
  const folder = t.testdir(files)
  for (const name of Object.keys(files)) chmodSync(join(folder, name), 0o600)
  const pair = (name: string) => ({ cert_file: join(folder, `${name}.pem`), key_file: join(folder, `${name}.key`) })
  const [httpPort, https, implicit, starttls, inbound] = await Promise.all([1, 2, 3, 4, 5].map(() => freePort()))
  const address = '127.0.0.1'
  const listen = {
    http: [
      { address, port: httpPort, tls: false, serve: ['api'] },
      { address, port: https, tls: true, serve: ['api'] },
    ],
    submission: [
      { address, port: implicit, tls: 'implicit' },
      { address, port: starttls, tls: 'starttls' },
    ],
    inbound: [{ address, port: inbound }],
  }
  const { server } = await startScene(t, {
    httpPort: httpPort ?? 0,
    settings: { listen, tls: { certificates: [pair('mail'), pair('other')] } },
  })
  const shown = async (name: string): Promise<string[]> =>
    Promise.all([
      subjectAt(https, name),
      subjectAt(implicit, name),
      subjectAt(starttls, name, true),
      subjectAt(inbound, name, true),
    ])
  const all = (name: string): string[] => [name, name, name, name]
  t.same(await shown('mail.example.net'), all('mail.example.net'))
  t.same(await shown('other.example.net'), all('other.example.net'), 'by the name that is asked for')

  const withCertificates = (certificates: unknown, doors: unknown = listen): void =>
    write(server, 'sternpost.d/50-tls.yaml', { listen: doors, tls: { certificates } })
  withCertificates([{ ...pair('mail'), key_file: join(folder, 'other.key') }])
  const bad = await sternpost(server, 'reload')
  t.equal(bad.code, 78)
  t.match(bad.output, 'this key does not belong to')
  t.same(await shown('mail.example.net'), all('mail.example.net'))

  withCertificates([pair('other')])
  const good = await sternpost(server, 'reload')
  t.equal(good.code, 0, good.output)
  t.ok(hasLine(good.output, /^ {2}~ tls\.certificates /), good.output)
  t.same(await shown('mail.example.net'), all('other.example.net'), 'what is gone is not used any more')
  const metrics = await (await fetch(server.metricsUrl)).text()
  t.match(metrics, /certificate_expiry_timestamp_seconds\{certificate="[^"]*other\.pem"\}/)
  t.notMatch(metrics, 'mail.pem')

  // A renewal: other bytes under the same names.
  writeFileSync(join(folder, 'other.pem'), MAIL_CERTIFICATE)
  writeFileSync(join(folder, 'other.key'), MAIL_KEY)
  t.equal((await sternpost(server, 'reload')).code, 0)
  t.same(await shown('other.example.net'), all('mail.example.net'))

  withCertificates([], { http: listen.http.slice(0, 1), submission: [], inbound: listen.inbound })
  t.equal((await sternpost(server, 'reload')).code, 0)
  t.same(await shown('mail.example.net'), all('mail.example.net'), 'doors that close at the next start keep theirs')
})

const disk = mountSmallDisk(64 * MIB)
if (disk === undefined) {
  t.pass('left out', { skip: 'a small disk cannot be mounted here: that takes root and the right to mount' })
} else {
  t.teardown(() => disk.remove())
  await t.test('a reload while the disk is full leaves the old one', async (t) => {
    const storage = { min_free_accept: '8MiB', min_free_deliver: '2MiB' }
    const { server, api } = await startScene(t, { dataFolder: join(disk.folder, 'data'), settings: { storage } })
    const before = await ipsOf(api)
    write(server, 'pools.yaml', { ...POOLS, pools: { default: { ips: [...DEFAULT_IPS, NEW_IP] } } })
    disk.fill(0)
    await until(
      'the server has seen it',
      () => server.log().some(({ msg }) => String(msg).startsWith('starting deliveries stopped')),
      DEADLINE,
    )
    const told = await reloadBySignal(server)
    t.match(told, { level: 'error', problem: /the disk is full/ })
    const { code, output } = await sternpost(server, 'reload')
    t.ok(code !== 0 && output.includes('the disk is full'), output)
    t.equal(await lastReload(server), 0)
    t.strictSame(await ipsOf(api), before)
    disk.free()
    await until('it is taken over', async () => (await sternpost(server, 'reload')).code === 0, DEADLINE)
    t.equal(await lastReload(server), 1)
    t.ok((await ipsOf(api)).some(({ ip }) => ip === NEW_IP.address))
  })
}

interface Ip {
  ip: string
  pool: string
  weight: number
  status: string
}

/** The server with two pools, and a receiver that can defer, and that refuses `strange@` in words of its own. */
async function startScene(t: Test, options: Pick<ServeOptions, 'dataFolder' | 'httpPort' | 'settings'> = {}) {
  let isDeferring = false
  const mx = await scriptedMx({
    script: {
      rcpt(line) {
        if (line.includes('<strange@')) return '550 peculiar words'
        return isDeferring ? '451 4.3.0 come back later' : '250 2.1.5 ok'
      },
    },
  })
  t.teardown(() => mx.close())
  const zone = await startApplianceZone('127.0.0.1')
  t.teardown(() => zone.close())
  zone.set('spf.mail.sternpost.test', { TXT: [SPF] })
  const server = await startServe({
    dnsServer: zone.server,
    deliveryPort: mx.port,
    pools: POOLS,
    ...options,
    settings: { ...options.settings, delivery: { retry: ['1h'] } },
    files: { 'providers.d/50-fast.yaml': { default: { connection_rate: '1000/second' } } },
  })
  t.teardown(() => server.remove())
  const api = await prepareSender(server, zone)
  const send = (to: string, more: Record<string, unknown> = {}): Promise<string> =>
    api.send({ to, from: `shop@${SENDING_DOMAIN}`, subject: 'Order', text: 'On its way', ...more })
  return { server, api, mx, send, setDeferring: (value: boolean) => void (isDeferring = value) }
}

/** The name in the certificate of a door; `isStartTls`: after STARTTLS. */
async function subjectAt(port: number | undefined, servername: string, isStartTls = false): Promise<string> {
  const plain = connect(port ?? 0, '127.0.0.1')
  if (isStartTls) {
    for (const command of ['EHLO client.example\r\n', 'STARTTLS\r\n']) {
      await once(plain, 'data')
      plain.write(command)
    }
    await once(plain, 'data')
  }
  const socket = connectTls({ socket: plain, servername, rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  const { subject } = socket.getPeerCertificate()
  socket.destroy()
  return String(subject.CN)
}

function write(server: ServeProcess, file: string, content: unknown): void {
  const path = join(server.configurationFolder, file)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, JSON.stringify(content, null, 2))
}

function reloads(server: ServeProcess): Record<string, unknown>[] {
  return server
    .log()
    .filter(
      ({ msg }) =>
        String(msg).startsWith('configuration reloaded') || String(msg).startsWith('configuration not reloaded'),
    )
}

/** What the log says of it. */
async function reloadBySignal(server: ServeProcess): Promise<Record<string, unknown>> {
  const before = reloads(server).length
  process.kill(server.processId, 'SIGHUP')
  return until('the reload is in the log', () => reloads(server)[before], DEADLINE)
}

async function lastReload({ metricsUrl }: ServeProcess): Promise<number> {
  const text = await (await fetch(metricsUrl)).text()
  // The value behind the name.
  return Number(/^sternpost_config_last_reload_success (\d+)$/m.exec(text)?.[1])
}

function sternpost(server: ServeProcess, ...words: string[]): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    execFile('sh', [COMMAND, ...words, '--config', server.configurationFolder], (failed, stdout, stderr) => {
      resolve({ code: typeof failed?.code === 'number' ? failed.code : 0, output: stdout + stderr })
    })
  })
}

function hasLine(output: string, line: RegExp): boolean {
  return output.split('\n').some((each) => line.test(each))
}

/** Without what upkeep looks up every five minutes. */
async function ipsOf(api: ApiClient): Promise<Ip[]> {
  const { body } = await api.get('/ips')
  return (body['data'] as (Ip & Record<string, unknown>)[]).map(({ ptr: _ptr, blocklists: _blocklists, ...ip }) => ip)
}

async function messageOf(api: ApiClient, id: string): Promise<{ state: string; bounce: { category: string } | null }> {
  const { body } = await api.get(`/email/${id}`)
  return body['data'] as { state: string; bounce: { category: string } | null }
}

async function stateOf(api: ApiClient, id: string): Promise<string> {
  return (await messageOf(api, id)).state
}

function statesOf(api: ApiClient, ids: readonly string[]): Promise<string[]> {
  return Promise.all(ids.map((id) => stateOf(api, id)))
}

async function categoryOf(api: ApiClient, id: string): Promise<string | undefined> {
  return (await messageOf(api, id)).bounce?.category
}
