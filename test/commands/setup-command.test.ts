/**
 * `sternpost setup` on a machine without systemd, in a folder of the test's own: what it asks, writes, keeps and takes
 * back; and over the admin socket of a server that runs on what it wrote.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { startAppliance } from '../../src/appliance.ts'
import { createLogger } from '../../src/base/logger.ts'
import { loadConfiguration } from '../../src/config/load-configuration.ts'
import { skipWithoutPebble, startPebble } from '../support/pebble.ts'
import { missingPrograms } from '../support/programs.ts'
import { freePort } from '../support/serve-process.ts'
import { until } from '../support/until.ts'
import { startZone } from '../support/zone.ts'
import { sternpost } from './command-server.ts'

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url))
const SHIPPED_FOLDER = fileURLToPath(new URL('../../config', import.meta.url))
const MODE_BITS = 0o777
const GIVEN = [
  '--hostname',
  'mail.acme.test',
  '--domain',
  'acme.test',
  '--operator-email',
  'ada@acme.test',
  '--ip',
  '127.0.0.11',
  '--ip',
  '127.0.0.12',
  '--yes',
]

const skipping = { skip: skipWithoutPebble }

interface Place {
  /** Of the configuration. */
  folder: string
  log: string
  zone: Awaited<ReturnType<typeof startZone>>
  setup(words: string[], environment?: Record<string, string>): ReturnType<typeof sternpost>
}

async function place(t: Test, dropIn: Record<string, unknown> = {}): Promise<Place> {
  const root = mkdtempSync(join(tmpdir(), 'sternpost-setup-'))
  t.teardown(async () => rmSync(root, { recursive: true, force: true }))
  const zone = await startZone({ 'gmail.com': { MX: ['10 mx.provider.test'] } })
  t.teardown(() => zone.close())
  const folder = join(root, 'etc')
  const log = join(root, 'setup.log')
  mkdirSync(join(folder, 'sternpost.d'), { recursive: true })
  mkdirSync(join(root, 'data'))
  writeFileSync(
    join(folder, 'sternpost.d', '10-test.yaml'),
    JSON.stringify({
      data_dir: join(root, 'data'),
      dns: { servers: [zone.server] },
      delivery: { allow_private_addresses: true },
      listen: {
        http: [{ address: '127.0.0.1', port: await freePort(), tls: true, serve: ['api', 'tracking'] }],
        submission: [],
        inbound: [],
        metrics: null,
        admin_socket: join(root, 'admin.sock'),
      },
      ...dropIn,
    }),
  )
  const setup: Place['setup'] = (words, environment) =>
    sternpost(['setup', '--config', folder, '--log', log, ...words], environment)
  return { folder, log, zone, setup }
}

function modeOf(file: string): string {
  return (statSync(file).mode & MODE_BITS).toString(8)
}

t.test('without a terminal it lists what is missing, and asks nothing', async (t) => {
  const { folder, log, setup } = await place(t)
  const ended = await setup(['--hostname', 'mail.acme.test'])
  t.equal(ended.code, 64)
  t.match(ended.stderr, /missing: --domain <name> --operator-email <address> --ip <address> --yes/)
  const named = await setup(['--hostname', 'mail.acme.test', '--domain', 'acme.test', '--ip', '127.0.0.11', '--yes'])
  t.match(named, { code: 64, stderr: /missing: --operator-email <address>\.\n$/ })
  const wrong = await setup([...GIVEN.slice(0, -3), '--ip', '127.0.0.300', '--yes'])
  t.match(wrong, { code: 64, stderr: /--ip: "127\.0\.0\.300" is no IP address/ })
  t.same(readdirSync(folder), ['sternpost.d'], 'nothing was written')
  t.notOk(existsSync(log))
})

t.test('the first run writes everything, a later one changes nothing', async (t) => {
  const { folder, log, zone, setup } = await place(t)
  const first = await setup(GIVEN)
  t.equal(first.code, 0, first.stderr)
  t.match(first.stdout, /warning: ptr: 127\.0\.0\.11 there is no reverse name/)
  t.match(first.stdout, /wrote {5}\S+master\.key/)
  t.notMatch(first.stdout, /stays as it is/)
  t.match(first.stdout, /TXT +spf\.mail\.acme\.test +v=spf1 ip4:127\.0\.0\.11 ip4:127\.0\.0\.12 -all/)
  t.match(first.stdout, /127\.0\.0\.12 +mta2\.mail\.acme\.test/)
  t.match(first.stdout, /CREDENTIALS_DIRECTORY=\S+ sternpost serve/, 'what to run where systemd is not')
  t.same(
    readdirSync(folder).toSorted(),
    ['dns-records.zone', 'master.key', 'pools.yaml', 'sternpost.d', 'sternpost.yaml', 'tls'],
    'and nothing besides',
  )
  t.same([modeOf(join(folder, 'master.key')), modeOf(join(folder, 'tls', 'privkey.pem'))], ['600', '640'])
  t.equal(modeOf(log), '600')
  t.match(readFileSync(join(folder, 'dns-records.zone'), 'utf8'), /^mail\.acme\.test\. 3600 IN A 127\.0\.0\.11$/m)
  const asked = zone.queries.filter((query) => query.includes('acme.test'))
  t.ok(
    asked.every((query) => query.endsWith(' mail.acme.test')),
    'records that are about to be created are not asked for, but for the name that a certificate would be for',
  )

  const load = (): ReturnType<typeof loadConfiguration> =>
    loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER, credentialsFolder: folder })
  const { server, pools } = load()
  t.match(server, { hostname: 'mail.acme.test', operator: { email: 'ada@acme.test' } })
  t.match(pools.pools['default']?.ips, [
    { address: '127.0.0.11', hostname: 'mail.acme.test', warmed: false },
    { address: '127.0.0.12', hostname: 'mta2.mail.acme.test' },
  ])

  const before = contentsOf(folder)
  const appliance = await startAppliance({
    configuration: load(),
    logger: createLogger({ level: 'silent' }),
    onFatal: (reason) => {
      throw reason
    },
  })
  t.teardown(() => appliance.stop())
  // The wait for the records ends by a signal.
  const second = await endedWhileWaiting(t, { folder, log }, (child) => void child.kill('SIGTERM'))
  t.equal(second.code, 0, second.stderr)
  const made = JSON.parse(second.stdout)
  t.notOk(second.stderr.includes(made.key), 'the key is in the document alone')
  t.match(made, {
    hostname: 'mail.acme.test',
    server: 'running',
    domain: { name: 'acme.test', created: true },
    files: { added: [], kept: ['sternpost.yaml', 'pools.yaml', 'master.key', /fullchain/, /privkey/] },
    key: /^sk_live_/,
    next: /sternpost domain check acme\.test/,
  })
  t.match(readFileSync(join(folder, 'dns-records.zone'), 'utf8'), /_domainkey\.acme\.test\. 3600 IN TXT/)
  t.match(await appliance.domains.find('acme.test'), { status: 'pending', allow_subdomains: true })
  t.match(await appliance.apiKeys.authenticate(made.key, '127.0.0.1'), { scopes: ['send'], mode: 'live' })
  const logged = readFileSync(log, 'utf8')
  t.notOk(logged.includes(made.key), 'the log has no key')
  t.match(logged, new RegExp(`API key, shown only now: {2}…${made.key.slice(-4)}`))

  const others = ['--operator-email', 'bob@acme.test', '--acme', '--warmed', '--ip', '127.0.0.12', '--ip', '127.0.0.13']
  const third = await setup(['--domain', 'acme.test', '--hostname', 'other.acme.test', ...others])
  t.equal(third.code, 0, third.stderr)
  t.match(third.stdout, /kept {6}domain acme\.test[\s\S]+kept {6}the API keys/)
  t.match(third.stdout, /its hostname is mail\.acme\.test, not other\.acme\.test/)
  t.match(third.stdout, /its operator\.email is ada@acme\.test, not bob@acme\.test/)
  t.match(third.stdout, /it has no tls\.acme, so/)
  t.match(third.stdout, /it has no 127\.0\.0\.13, [\s\S]+ 127\.0\.0\.12 is not warmed there/)
  t.same(contentsOf(folder), before, 'no file has changed')
  t.equal((await setup([])).code, 0)
  t.match(readFileSync(join(folder, 'dns-records.zone'), 'utf8'), /_domainkey\.acme\.test/, 'nor lost its domain')
  const stopped = await endedWhileWaiting(t, { folder, log }, () => appliance.stop())
  t.match(JSON.parse(stopped.stdout), { hostname: 'mail.acme.test', key: null, certificate: null }, 'or the server')
})

/** `setup --json`, which looks for the records of the domain until `end` is called. */
async function endedWhileWaiting(
  t: Test,
  { folder, log }: Pick<Place, 'folder' | 'log'>,
  end: (child: ChildProcess) => Promise<void> | void,
): ReturnType<typeof sternpost> {
  const words = ['setup', '--config', folder, '--log', log, '--domain', 'acme.test', '--wait', '1h', '--json']
  const child = spawn(process.execPath, [MAIN, ...words], { stdio: ['ignore', 'pipe', 'pipe'] })
  t.teardown(() => child.kill('SIGKILL'))
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (text: Buffer) => (stdout += text.toString()))
  child.stderr.on('data', (text: Buffer) => (stderr += text.toString()))
  const closed = once(child, 'close')
  await Promise.race([until('it looks for them', () => stderr.includes('Looking for the records')), closed])
  await end(child)
  const [code] = await closed
  return { code: Number(code), stdout, stderr }
}

/** What an administrator may have changed since. */
function contentsOf(folder: string): Record<string, string> {
  const names = ['sternpost.yaml', 'pools.yaml', 'master.key', 'tls/fullchain.pem', 'tls/privkey.pem']
  return Object.fromEntries(names.map((name) => [name, readFileSync(join(folder, name), 'utf8')]))
}

t.test('files that the server would refuse are not written', async (t) => {
  const { folder, setup } = await place(t, { delivery: { port: 25 } })
  const ended = await setup(GIVEN)
  t.equal(ended.code, 78)
  t.match(ended.stderr, /pools\.yaml:\d+:\d+: pools\.default\.ips\[0\]\.address: 127\.0\.0\.11 is a loopback/)
  t.notMatch(ended.stderr, /\.setup-/, 'with the places where they would be')
  t.same(readdirSync(folder), ['sternpost.d'])
})

t.test('a failure on the way takes back what was made', async (t) => {
  const { folder, setup } = await place(t)
  const programs = mkdtempSync(join(tmpdir(), 'sternpost-path-'))
  t.teardown(async () => rmSync(programs, { recursive: true, force: true }))
  writeFileSync(join(programs, 'openssl'), '#!/bin/sh\necho no entropy today >&2\nexit 1\n', { mode: 0o755 })
  const ended = await setup(GIVEN, { PATH: `${programs}:${process.env['PATH']}` })
  t.match(ended, { code: 1, stderr: /openssl made no certificate[\s\S]+no entropy today/ })
  t.same(readdirSync(folder), ['sternpost.d'])
})

t.test('certificates by themselves are usual where the host name leads to this machine', async (t) => {
  const [usual, declined] = [await place(t), await place(t)]
  for (const { zone } of [usual, declined]) zone.set('mail.acme.test', { A: ['127.0.0.11'] })
  t.equal((await usual.setup(GIVEN)).code, 0)
  t.match(
    readFileSync(join(usual.folder, 'sternpost.yaml'), 'utf8'),
    /tls:[\s\S]+acme:\n {4}directory: "letsencrypt"\n {4}email: "ada@acme\.test"\n$/,
  )
  t.notOk(existsSync(join(usual.folder, 'tls')), 'nothing of its own in their place')
  t.equal((await declined.setup([...GIVEN, '--no-acme'])).code, 0)
  t.ok(existsSync(join(declined.folder, 'tls', 'fullchain.pem')))
  t.notMatch(readFileSync(join(declined.folder, 'sternpost.yaml'), 'utf8'), /acme:/)
})

t.test('it ends with certificate, console, records as they are found, and the first mail', skipping, async (t) => {
  const [httpPort, tlsPort] = [await freePort(), await freePort()]
  const root = mkdtempSync(join(tmpdir(), 'sternpost-socket-'))
  t.teardown(async () => rmSync(root, { recursive: true, force: true }))
  const listen = {
    http: [
      { address: '127.0.0.1', port: httpPort, tls: false, serve: ['api', 'acme'] },
      { address: '127.0.0.1', port: tlsPort, tls: true, serve: ['api', 'console'] },
    ],
    submission: [],
    inbound: [],
    metrics: null,
    admin_socket: join(root, 'admin.sock'),
  }
  const { folder, log, zone, setup } = await place(t, { listen })
  zone.set('mail.acme.test', { A: ['127.0.0.1'] })
  const pebble = await startPebble(t, { httpPort, dnsServer: zone.server })
  const wanted = await setup([...GIVEN, '--warmed', '--acme', pebble.directory, '--acme-ca-file', pebble.caFile])
  t.equal(wanted.code, 0, wanted.stderr)
  const appliance = await startAppliance({
    configuration: loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER, credentialsFolder: folder }),
    logger: createLogger({ level: 'silent' }),
    onFatal: (reason) => {
      throw reason
    },
  })
  t.teardown(() => appliance.stop())
  const first = await setup(['--domain', 'acme.test', '--json'])
  const made = JSON.parse(first.stdout)
  t.match(made, {
    certificate: { name: 'mail.acme.test', problem: null, authority: /Pebble/ },
    console: /^https:\/\/mail\.acme\.test\S*\/console\/login\//,
    domain_status: null,
    curl: /^curl https:\/\/mail\.acme\.test\S*\/v1\/email\/send -H "Authorization: Bearer \$KEY"/,
  })
  const published: Record<string, Record<string, string | string[]>> = {}
  for (const { type, name, value } of made.records) {
    published[name] = { ...published[name], [type]: type === 'CNAME' ? value : [value] }
  }
  for (const [name, records] of Object.entries(published)) {
    if (name !== 'mail.acme.test') zone.set(name, records)
  }
  const second = await setup(['--domain', 'acme.test', '--wait', '60s', '--no-console'])
  t.equal(second.code, 0, second.stderr)
  t.match(second.stdout, /there {5}certificate for mail\.acme\.test by .*Pebble.*; renewed by itself/)
  t.match(second.stdout, / {2}✔ .+ {2}dkim {2}\S+_domainkey\.acme\.test\n/)
  t.match(second.stdout, /\nacme\.test is verified\n[\s\S]+The first mail:\n/)
  const sent = /-d '(\{.+\})'/.exec(second.stdout)?.[1] ?? ''
  const answer = await fetch(`http://127.0.0.1:${httpPort}/v1/email/send`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${made.key}`, 'Content-Type': 'application/json' },
    body: sent,
  })
  t.equal(answer.status, 200, await answer.text())
  t.notMatch(readFileSync(log, 'utf8'), made.console, 'who reads the log cannot log in')
})

/** Setup on a terminal; each answer follows its question. */
async function onTerminal({ folder, log }: Place, answers: [question: string, answer: string][]) {
  const words = `${process.execPath} ${MAIN} setup --config ${folder} --log ${log} --warmed`
  const terminal = spawn('script', ['-qec', words, '/dev/null'], { stdio: ['pipe', 'pipe', 'inherit'] })
  let shown = ''
  terminal.stdout.on('data', (chunk: Buffer) => {
    shown += chunk.toString()
    const [question = '', answer = ''] = answers[0] ?? []
    const at = shown.indexOf(question)
    if (question === '' || at < 0) return
    answers.shift()
    shown = shown.slice(at + question.length)
    terminal.stdin.write(answer)
  })
  const [code] = await once(terminal, 'exit')
  return { code, shown, left: answers }
}

const CTRL_C = '\u0003'

t.test('on a terminal it asks', { skip: missingPrograms({ script: ['bsdutils'] }) }, async (t) => {
  const [asked, interrupted] = [await place(t), await place(t)]
  const [ended, gone] = await Promise.all([
    onTerminal(asked, [
      ['Mail host name', 'mail.acme.test\n'],
      ['First sending domain [acme.test]', '\n'],
      ['gets alerts', 'nobody\n'],
      ['"nobody"', 'ada@acme.test\n'],
      ['Addresses that mail leaves from', '127.0.0.11\n'],
      ['(mail.acme.test does not lead to this machine yet) [y/N]', 'yes\n'],
      ['[Y/n]', 'y\n'],
    ]),
    onTerminal(interrupted, [
      ['Mail host name', 'mail.acme.test\n'],
      ['First sending domain', CTRL_C],
    ]),
  ])
  t.equal(ended.code, 0, ended.shown)
  t.same(ended.left, [], 'every question was asked')
  t.match(readFileSync(join(asked.folder, 'pools.yaml'), 'utf8'), /address: "127\.0\.0\.11"[\s\S]+warmed: true/)
  t.match(readFileSync(join(asked.folder, 'sternpost.yaml'), 'utf8'), /hostname: "mail\.acme\.test"[\s\S]+letsencrypt/)
  t.match(gone, { code: 130, shown: /nothing was changed/ })
  t.same(readdirSync(interrupted.folder), ['sternpost.d'])
})
