/**
 * The parts of the checks that stand alone: what `systemctl` and `ss` print, greetings, secrets, and what is said of
 * very many findings. What needs a whole server is in `scenarios/doctor.test.ts`.
 */
import { chmodSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { once } from 'node:events'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { HOUR, MINUTE, type Clock } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { checkDomains } from '../../src/health/checks/check-domains.ts'
import { checkDatabase } from '../../src/health/checks/check-files.ts'
import { checkClock, checkDisk, checkSecrets } from '../../src/health/checks/check-host.ts'
import { isOurs } from '../../src/health/checks/check-doors.ts'
import { checkFeedback, checkOrphans, checkWebhooks } from '../../src/health/checks/check-mail-flow.ts'
import { unitFindings } from '../../src/health/checks/check-units.ts'
import { checkOf, type HealthFinding } from '../../src/health/checks/check.ts'
import { greet } from '../../src/health/checks/greet.ts'
import { createHealthKeeper } from '../../src/health/health-keeper.ts'
import { alertText } from '../../src/health/operator-alert.ts'
import { inboundTls } from '../../src/health/operator-texts.ts'
import { holderIn } from '../../src/health/checks/own-doors.ts'
import type { CheckWorld } from '../../src/health/checks/world.ts'
import { FOREIGN_KEY } from '../../src/senders/records/dkim-keys.ts'

/** As systemd 252 prints the units of the package. */
const SERVICE = {
  LoadState: 'loaded',
  ActiveState: 'active',
  UnitFileState: 'enabled',
  DropInPaths: '',
  NoNewPrivileges: 'yes',
  PrivateUsers: 'yes',
  PrivateTmp: 'yes',
  PrivateDevices: 'yes',
  ProtectSystem: 'strict',
  ProtectHome: 'yes',
  ProtectKernelTunables: 'yes',
  ProtectControlGroups: 'yes',
  RestrictNamespaces: 'yes',
  CapabilityBoundingSet: '',
}
const PORTS = [443, 80, 587, 465, 25, 9464]

function unitsWith(service: Partial<typeof SERVICE>, ports: readonly number[] = [25, 587, 465, 443, 80]): string[] {
  const text = Object.entries({ ...SERVICE, ...service })
    .map(([name, value]) => `${name}=${value}\n`)
    .join('')
  const socket = ports.map((port) => `Listen=[::]:${port} (Stream)\n`).join('')
  return unitFindings({ service: text, socket }, PORTS).map(({ result, subject, seen, fix }) =>
    [result, subject, seen, fix].join(' | '),
  )
}

t.test('the units of the package are in order, and each departure is found', async (t) => {
  t.same(
    unitsWith({}),
    [
      'ok | sternpost.service | it is active and enabled | ',
      'ok | sternpost.socket | it opens 25, 587, 465, 443, 80 | ',
    ],
    'the port of the metrics needs no socket unit',
  )
  t.match(
    unitsWith({ ActiveState: 'failed' })[0],
    /^fail .*it is failed \| systemctl reset-failed .*; systemctl start sternpost/,
  )
  t.match(unitsWith({ UnitFileState: 'disabled' })[0], /^warn .*does not start with the machine/)
  const dropIn = '/etc/systemd/system/sternpost.service.d/override.conf'
  t.match(
    unitsWith({ PrivateUsers: 'no', CapabilityBoundingSet: 'cap_sys_admin', DropInPaths: dropIn })[1],
    /^warn .*override\.conf weakens it: PrivateUsers=no, CapabilityBoundingSet=cap_sys_admin \| .*PrivateUsers=yes/,
  )
  t.match(unitsWith({}, [25, 587, 443, 80])[1], /^fail .*does not open 465.*\[Socket\] ListenStream=465/)
  t.match(unitsWith({}, [25, 587, 465, 443, 80, 2525])[1], /^warn .*it opens 2525, which nobody serves/)
  t.match(unitFindings({ service: 'LoadState=not-found\n', socket: '' }, PORTS), [{ result: 'skip' }])
})

t.test('who holds a port, unless it is our own socket unit', async (t) => {
  t.equal(holderIn('LISTEN 0 20 127.0.0.1:25 0.0.0.0:* users:(("exim4",pid=812,fd=4))'), 'exim4 (process 812)')
  t.equal(holderIn('LISTEN 0 9 *:25 *:* users:(("node",pid=9,fd=3),("systemd",pid=1,fd=40))'), null)
  t.equal(holderIn(''), null)
})

t.test('our greeting is known, and not that of a server with the same name', async (t) => {
  t.ok(isOurs('220 mail.acme.test ESMTP', 'mail.acme.test'))
  t.notOk(isOurs('220 mail.acme.test ESMTP Postfix (Debian/GNU)', 'mail.acme.test'))
})

async function server(t: Test, onSocket: (socket: Socket) => void): Promise<number> {
  const sockets: Socket[] = []
  const listening = createServer((socket) => {
    sockets.push(socket.on('error', () => {}))
    onSocket(socket)
  }).listen(0, '127.0.0.1')
  await once(listening, 'listening')
  t.teardown(async () => {
    listening.close()
    for (const socket of sockets) socket.destroy()
  })
  return (listening.address() as AddressInfo).port
}

t.test('a greeting is read, and what answers our name; a host that says nothing has failed', async (t) => {
  const asked = { address: '127.0.0.1', timeoutMilliseconds: 30_000 }
  const deaf = await server(t, (socket) => socket.write('220 deaf.test ESMTP\r\n'))
  t.same(await greet({ ...asked, port: deaf }), { kind: 'greeted', line: '220 deaf.test ESMTP', answer: null })
  const polite = await server(t, (socket) => {
    socket.write('220-one\r\n22')
    socket.write('0 two\r\n')
    socket.on('data', () => socket.write('250-hello, [192.0.2.7]\r\n250 SIZE\r\n'))
  })
  t.same(await greet({ ...asked, port: polite, hello: 'mail.acme.test' }), {
    kind: 'greeted',
    line: '220-one',
    answer: '250-hello, [192.0.2.7]',
  })
  const mute = await server(t, () => {})
  t.same(await greet({ ...asked, port: mute, timeoutMilliseconds: 100 }), {
    kind: 'failed',
    reason: 'no greeting within 0.1 s',
  })
})

t.test('what others say is one line that moves no terminal', async (t) => {
  const { seen } = checkOf('inbound', 'It matters.').fail(null, '220 x\r\nSOLVED all\u001b[2J\u202e', 'fix it')
  t.equal(seen, '220 x SOLVED all [2J ')
})

t.test('a key that others can read is found, also in a copy of it', async (t) => {
  const folder = t.testdir({ 'master.key': 'key', 'master.key~': 'key' })
  chmodSync(join(folder, 'master.key'), 0o600)
  chmodSync(join(folder, 'master.key~'), 0o644)
  const key = join(folder, 'tls.pem')
  writeFileSync(key, 'key', { mode: 0o640 })
  const certificates = [{ cert_file: key, key_file: key }]
  const world = { folder, configuration: { server: { tls: { certificates } } } } as unknown as CheckWorld
  const found = await checkSecrets.run(world)
  t.same(
    found.map(({ result, subject, fix }) => [result, subject, fix]),
    [
      ['ok', join(folder, 'master.key'), null],
      ['fail', join(folder, 'master.key~'), `chmod o= ${join(folder, 'master.key~')}`],
      ['ok', key, null],
    ],
  )
})

t.test('a clock that is doubted is told, with what waits for it', async (t) => {
  const world = (isSteady: boolean): CheckWorld =>
    ({ server: { isClockSteady: () => isSteady }, clock: { now: Date.now } }) as unknown as CheckWorld
  t.match(await checkClock.run(world(false)), [{ result: 'warn', seen: /nothing is removed/, fix: /timedatectl/ }])
  t.notMatch(await checkClock.run(world(true)), [{ seen: /nothing is removed/ }])
})

t.test('no complaint says nothing before there is much mail', async (t) => {
  const results = async (sums: { sent: number; bounces: number; complaints: number }): Promise<string[]> => {
    const world = { server: { reportSums: async () => sums }, clock: { now: () => 0 } } as unknown as CheckWorld
    return (await checkFeedback.run(world)).map(({ subject, result }) => `${subject} ${result}`)
  }
  t.same(await results({ sent: 5_000, bounces: 0, complaints: 0 }), ['bounce skip', 'complaint skip'])
  t.same(await results({ sent: 50_000, bounces: 0, complaints: 0 }), ['bounce warn', 'complaint skip'])
  t.same(await results({ sent: 500_000, bounces: 9, complaints: 0 }), ['bounce ok', 'complaint warn'])
})

t.test("what was in nobody's hand is told, with since when and what to do", async (t) => {
  const orphansOf = (messages: number, webhooks: number) =>
    checkOrphans.run({ server: { orphans: async () => ({ messages, webhooks, upMilliseconds: 3 * HOUR }) } } as never)
  t.match(await orphansOf(0, 0), [{ check: 'orphans', result: 'ok', seen: /since the start 3 h ago$/, fix: null }])
  for (const found of [await orphansOf(2, 0), await orphansOf(0, 2)]) {
    t.match(found, [{ result: 'warn', seen: /2 .* were in nobody's hand since the start 3 h ago/, fix: /^report it/ }])
  }
  t.match(await checkOrphans.run({ server: null } as never), [{ result: 'skip' }])
})

t.test('why posts fail is told before any of them is a dead letter', async (t) => {
  const failing = { id: 'wh_1', url: 'https://acme.test/', status: 'enabled', consecutiveFailures: 3, deadLetters: 0 }
  const webhooks = async () => ({ endpoints: [failing], oldestDueAt: null })
  const [found] = await checkWebhooks.run({ server: { webhooks }, clock: { now: () => 0 } } as never)
  t.match(found, { result: 'warn', fix: /^sternpost webhook test wh_1 .*--status pending$/ })
})

t.test('the same fault of thousands of domains fills neither the report nor a mail', async (t) => {
  const record = {
    purpose: 'dkim',
    type: 'TXT',
    name: 'x._domainkey.acme.test',
    value: 'v=DKIM1',
    status: 'failed',
    found: [],
    error: 'none',
    hint: null,
    required: true,
  }
  const view = { domain: 'acme.test', can_send: true, status: 'verified', records: [record] }
  const foreign = { ...view, records: [{ ...record, error: FOREIGN_KEY, hint: 'do not publish' }] }
  const [told] = await checkDomains.run(domainWorld([foreign], { platform: null }))
  t.match(told, { result: 'fail', seen: FOREIGN_KEY, fix: /^sternpost domain dkim rotate acme\.test/ })
  const links = {
    ...record,
    purpose: 'tracking',
    type: 'CNAME',
    name: 't.acme.test',
    value: 'track.test',
    required: false,
  }
  const uncertified = {
    ...view,
    records: [{ ...links, found: ['track.test'], error: 'no certificate for t.acme.test' }],
  }
  const [right] = await checkDomains.run(domainWorld([uncertified], { platform: null }))
  t.match(right, { result: 'warn', fix: /^the record is right: mend what is said of it, then: sternpost domain check/ })
  const world = domainWorld(Array(3_000).fill(view), { platform: null })
  const found: HealthFinding[] = await checkDomains.run(world)
  t.equal(found.length, 501)
  t.match(found.at(-1), { result: 'fail', seen: '2500 more findings are not shown' })
  const text = alertText({ at: 0, hostname: 'mail.acme.test', problems: found, solved: [] })
  t.equal(text.match(/^FAILURE|^WARNING/gm)?.length, 50)
  t.match(text, 'and 451 more problems')
})

t.test('a full disk and a database that was removed are told with what helps now', async (t) => {
  const folder = t.testdir({})
  const storage = { engine: 'sqlite', min_free_accept: 1, min_free_deliver: 2 ** 60, wal_max: 1 }
  const database = async () => ({ growthPerDay: null, bytes: 0, walBytes: 0, commitMilliseconds: null })
  const quickCheck = async () => ({ problem: 'ENOENT', isUnfinished: false })
  const configuration = { server: { data_dir: folder, storage } }
  const world = { configuration, server: { database, quickCheck } } as unknown as CheckWorld
  t.match(await checkDisk.run(world), [{ seen: /min_free_deliver.*: no delivery begins$/, fix: /a reload is refused/ }])
  const fix = new RegExp(`^do not stop the server: it still holds the file as /proc/${process.pid}/fd/`)
  t.match(await checkDatabase.run(world), [{ result: 'fail', seen: /was removed while the server runs$/, fix }])
  writeFileSync(join(folder, 'sternpost.db'), '')
  t.match(await checkDatabase.run(world), [{ result: 'fail', fix: /sternpost restore <newest backup>$/ }])
  const stopped = { configuration, server: null } as unknown as CheckWorld
  t.match(await checkDatabase.run(stopped), [{ result: 'fail', seen: /sternpost.db is empty$/ }])
  const file = new Sqlite(join(folder, 'sternpost.db'))
  file.pragma('user_version = 24')
  t.match(await checkDatabase.run(stopped), [{ result: 'ok', seen: 'its schema is 24' }])
  file.pragma('user_version = 9999')
  file.close()
  t.match(await checkDatabase.run(stopped), [{ result: 'fail', seen: /has schema version 9999, this program knows/ }])
})

/** `views`: the domains that send. */
function domainWorld(views: unknown[], { platform, asked }: { platform: string | null; asked?: string }): CheckWorld {
  return {
    domain: asked ?? null,
    server: { domains: async () => views },
    configuration: { server: { domains: { dkim: { platform_domain: platform } } } },
  } as unknown as CheckWorld
}

t.test('a platform domain that signs nothing is told, and nobody else is asked about it', async (t) => {
  const [sends, refused] = [true, false].map((canSend) => ({
    domain: 'ours.test',
    can_send: canSend,
    status: canSend ? 'verified' : 'suspended',
    records: [],
  }))
  const told = async (views: unknown[], platform: string | null, asked?: string): Promise<unknown[]> =>
    (await checkDomains.run(domainWorld(views, { platform, ...(asked === undefined ? {} : { asked }) })))
      .filter(({ seen }) => seen.includes('platform_domain'))
      .map(({ result, subject }) => [result, subject])
  t.same(await told([sends], 'ours.test'), [])
  t.same(await told([sends], null), [])
  t.same(await told([sends], 'gone.test', 'ours.test'), [])
  t.same(await told([], 'gone.test', 'gone.test'), [['warn', 'gone.test']])
  t.same(await told([], 'gone.test'), [['warn', 'gone.test']])
  t.same(await told([sends], 'gone.test'), [['warn', 'gone.test']])
  t.same(await told([refused], 'ours.test'), [['warn', 'ours.test']])
})

t.test('who asks at once shares one run, and a clock that was set back does not silence the checks', async (t) => {
  let [now, runs] = [Date.UTC(2030, 0, 1), 0]
  const file = join(t.testdir({}), 'health.json')
  const options = {
    file,
    hostname: 'mail.acme.test',
    metrics: createMetrics(),
    logger: createLogger({ level: 'silent' }),
    channels: () => [],
    interval: () => HOUR,
    clock: { now: () => now } as Clock,
    // Nothing to look at: every check fails, which is a finding.
    world() {
      runs += 1
      return { server: null } as CheckWorld
    },
  }
  const keeper = createHealthKeeper(options)
  const all = { checks: null, ip: null, domain: null }
  await keeper.runDue()
  t.equal(runs, 0, 'not at the start')
  await Promise.all([keeper.run(all), keeper.run(all), keeper.run(all)])
  t.equal(runs, 1)
  now += 30 * MINUTE
  await keeper.runDue()
  t.equal(runs, 1, 'not before its time')
  now = Date.UTC(2026, 0, 1)
  await keeper.runDue()
  t.equal(runs, 2)
  await keeper.runDue()
  t.equal(runs, 2)
  const next = createHealthKeeper(options)
  now += 5 * MINUTE
  await next.runDue()
  t.equal(runs, 3, 'what the server before found is looked at anew 5 minutes after a start')
})

t.test('a TLSA record is printed only for a key that stays', async (t) => {
  const textOf = (certificate: Parameters<typeof inboundTls>[0]['certificate']): string =>
    inboundTls({ hostname: 'mail.acme.test', domains: ['mail.acme.test', 'rp.mail.acme.test'], certificate })
  const record = '_25._tcp.mail.acme.test. IN TLSA 3 1 1 abcd'
  const known = { tlsa: '3 1 1 abcd', keepsKey: true, isOfAuthority: true }
  t.match(textOf(known), `${record}\n\n  The key stays until: sternpost certificate renew mail.acme.test --new-key`)
  t.match(textOf({ ...known, isOfAuthority: false }), `${record}\n\n  It is the key of the file`)
  for (const certificate of [{ ...known, keepsKey: false }, { ...known, tlsa: null }, null]) {
    t.notMatch(textOf(certificate), 'IN TLSA')
  }
  t.match(textOf(null), '_mta-sts.rp.mail.acme.test. IN TXT "v=STSv1; id=1"')
})
