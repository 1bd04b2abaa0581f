/**
 * `sternpost queue`, `reload`, `config diff` and `check --dns` as an administrator runs them: the real verbs over a
 * real admin socket, with a real store and real files. What changes many messages shows its count first.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { HOUR } from '../../src/base/clock.ts'
import { ConfigurationError } from '../../src/base/errors.ts'
import { loadConfiguration, type Configuration } from '../../src/config/load-configuration.ts'
import type { Pool } from '../../src/config/settings/pool-settings.ts'
import { poolOf, warmed, withPools } from '../egress/egress-parts.ts'
import { acceptOne } from '../store/store-samples.ts'
import { startZone } from '../support/zone.ts'
import { commandServer, sternpost, writeServerFiles, type CommandServer, rows } from './command-server.ts'

/** Files without a warning. */
const configured = (pools: Record<string, Pool>): Configuration => ({ ...withPools(pools), warnings: [] })

/** Two messages to big.example, which google runs, and one to a domain nobody looked up. */
async function withQueue(t: Test): Promise<CommandServer & { ids: string[] }> {
  const server = await commandServer(t, { ownStore: true })
  const { store, clock } = server.api
  const now = clock.now()
  const ids: string[] = []
  for (const recipientDomain of ['big.example', 'big.example', 'new.example']) {
    const to = { name: null, address: `ada@${recipientDomain}` }
    ids.push(await acceptOne(store, { now }, { to, recipientDomain, expiresAt: now + HOUR }))
  }
  await store.assignRoutes([{ domain: 'big.example', route: 'google', isp: 'gmail' }])
  return { ...server, ids }
}

t.test('list groups what waits', async (t) => {
  const { run } = await withQueue(t)
  const plain = await run('queue', 'list')
  t.match([plain.code, plain.stderr], [0, ''])
  t.match(rows(plain.stdout), [
    ['gmail', '2', '2', '0', /^2026-/],
    ['not known yet', '1', '1', '0', String],
  ])
  const byDomain = await run('queue', 'list', '--by', 'recipient-domain', '--provider', 'gmail')
  t.match(rows(byDomain.stdout), [['big.example', '2']])
  t.match(rows((await run('queue', 'list', '--by', 'domain')).stdout), [['acme.com', '3']])
  t.match(JSON.parse((await run('queue', 'list', '--by', 'pool', '--json')).stdout), [{ name: 'default', waiting: 3 }])
  t.match(await run('queue', 'list', '--held'), { code: 0, stdout: '', stderr: 'Nothing waits there.\n' })
  t.match(await run('queue', 'list', '--pool', 'x'), { code: 1, stdout: '', stderr: /no pool "x"; there are default/ })
  t.match(await run('queue', 'list', '--by', 'colour'), { code: 64, stdout: '' })
})

t.test('explain tells why a message waits, and names a verb that is there when there is none', async (t) => {
  const { run, ids } = await withQueue(t)
  t.match(await run('queue', 'explain', ids[0] ?? ''), { code: 0, stdout: new RegExp(`^${ids[0]} {2}queued\n`) })
  const unknown = await run('queue', 'explain', 'msg_01kapg6t3vq8x2m5r7w9y4c6de')
  t.match(unknown, { code: 1, stdout: '', stderr: /Fix: `sternpost message list` shows which there are\.\n$/ })
})

t.test('every action counts first and needs --yes', async (t) => {
  const { run, api, ids, folder } = await withQueue(t)
  const asked = await run('queue', 'hold', '--provider', 'gmail', '--recipient-domain', 'big.example')
  t.match(asked, { code: 64, stdout: '2 messages would be held\n' })
  const command = `queue hold --provider gmail --recipient-domain big.example --yes --config ${folder}`
  t.equal(asked.stderr, `Nothing is changed yet. Do it with: sternpost ${command}\n`, 'the same server')
  t.match(await run('queue', 'list', '--held'), { stdout: '' }, 'nothing is changed')
  for (const time of ['1', '5', 'yesterday 5', '11/12', '2026', 'Nov 5', '2026-02-30']) {
    const refused = await run('queue', 'drop', '--accepted-before', time, '--yes')
    t.match(refused, { code: 64, stdout: '', stderr: `sternpost: --accepted-before: "${time}" is no time; write` })
  }
  t.match(await run('queue', 'drop', '--accepted-before', '2999-01-01', '--yes'), {
    code: 64,
    stderr: '2999-01-01T00:00 (local time) or 2999-01-01T00:00Z (UTC).\n',
  })
  t.equal((await run('queue', 'list', '--accepted-before', '2999-01-01')).code, 0, 'which changes nothing')
  const before = await run('queue', 'drop', '--accepted-before', '2026-11-21T10:00:00.2+02:00')
  t.match(before, { code: 0, stdout: '0 messages canceled\n' })
  const later = await run('queue', 'drop', '--accepted-before', '2999-01-01T00:00:00.2Z')
  t.match(later.stderr, 'queue drop --accepted-before 2999-01-01T00:00:01.000Z --yes')
  const counted = await run('queue', 'drop', '--json')
  t.match([counted.code, JSON.parse(counted.stdout)], [64, { action: 'drop', messages: 3, dry_run: true }])

  t.match(await run('queue', 'hold', '--provider', 'gmail', '--yes'), { code: 0, stdout: '2 messages held\n' })
  t.match(rows((await run('queue', 'list', '--held')).stdout), [['gmail', '2', '0', '2']])
  t.match(await run('queue', 'hold', '--provider', 'gmail'), { code: 0, stdout: '0 messages held\n' }, 'nothing to do')
  t.match(await run('queue', 'release', '--held', '--yes'), { code: 0, stdout: '2 messages released\n' })
  t.match(await run('queue', 'retry', '--yes'), { code: 0, stdout: '0 messages tried now\n' }, 'all of it is due')
  const move = ['queue', 'move', '--domain', 'acme.com', '--to', 'spare']
  t.match(await run(...move), { code: 64, stderr: /sternpost queue move --domain acme\.com --to spare --yes/ })
  t.match(await run(...move, '--yes'), { code: 0, stdout: '3 messages moved to spare\n' })
  t.match(await run('queue', 'move', '--to', 'nowhere', '--yes'), { code: 1, stderr: /no pool "nowhere"/ })
  t.match(await run('queue', 'move', '--yes'), { code: 64 })
  t.match(await run('queue', 'drop', '--recipient-domain', 'new.example', '--yes', '--json'), {
    code: 0,
    stdout: '{"action":"drop","messages":1,"dry_run":false}\n',
  })
  t.match(await api.store.lookupMessage(ids[2] ?? '', api.clock.now()), { state: 'canceled' })
})

t.test('reload prints what it took over; config diff what it would', async (t) => {
  const first = { default: poolOf([warmed('127.0.0.11')]), legacy: poolOf([warmed('127.0.0.13')]) }
  const files: { read: () => Configuration } = { read: () => configured(first) }
  const { run, api } = await commandServer(t, { ownStore: true, load: () => files.read() })
  t.match((await run('reload')).code, 0)
  t.match(await run('reload'), { code: 0, stdout: /^reloaded, revision 3 \(\d+ ms\)\n {2}nothing has changed\n$/ })
  t.match(await run('config', 'diff'), { code: 0, stdout: '', stderr: 'The files say what the server runs with.\n' })
  await acceptOne(api.store, { pool: 'legacy' })
  files.read = () => configured({ default: poolOf([warmed('127.0.0.11', { weight: 5 })]) })
  const diff = await run('config', 'diff')
  t.match(diff, { code: 0, stderr: '', stdout: /^~ ip 127\.0\.0\.11 weight 100 -> 5$/m })
  const dry = await run('reload', '--dry-run')
  t.equal(dry.stdout, `revision 3 stays: a dry run\n${diff.stdout.replace(/^/gm, '  ').trimEnd()}\n`)
  const { code, stdout } = await run('reload')
  t.match([code, stdout], [0, /^reloaded, revision 4 \(\d+ ms\)\n/])
  t.match(stdout, '  - pool legacy (1 queued messages moved to default)\n')
  t.match(JSON.parse((await run('reload', '--json')).stdout), { applied: true, revision: 5, lines: [], mistakes: [] })
})

t.test('files with errors change nothing and end with 78; warnings are told beside the result', async (t) => {
  let load = (): Configuration => configured({ default: poolOf([warmed('127.0.0.11')]) })
  const { run, folder } = await commandServer(t, { ownStore: true, load: () => load() })
  const file = join(folder, 'bad.yaml')
  writeFileSync(file, 'pools:\n  default: 5\n')
  const mistake = { file, line: 2, column: 12, path: 'pools.default', message: '5 is not a map', suggestion: null }
  load = () => {
    throw new ConfigurationError([{ ...mistake, severity: 'error' }])
  }
  const refused = await run('reload')
  t.match(refused, { code: 78, stdout: '' })
  t.match(refused.stderr, `${file}:2:12: pools.default: 5 is not a map\n    default: 5\n             ^\n`)
  t.match(refused.stderr, '1 error in 1 file.')
  t.match((await run('config', 'diff')).code, 78)
  const document = await run('reload', '--json')
  t.match([document.code, JSON.parse(document.stdout)], [78, { applied: false, mistakes: [{ severity: 'error' }] }])
  load = () => ({ ...withPools({ default: poolOf([]) }), warnings: [{ ...mistake, severity: 'warning' }] })
  t.match(await run('reload'), { code: 0, stdout: /^reloaded, revision 2/, stderr: /warning: pools\.default: 5/ })
  t.match(await run('reload', '--quiet'), { code: 0, stderr: '' })
})

t.test('check --dns warns of names that receivers will not like', async (t) => {
  const folder = t.testdir({})
  writeServerFiles(folder, '/run/sternpost/admin.sock')
  const zone = await startZone({})
  t.teardown(() => zone.close())
  const ip = (address: string, hostname: string): object => ({ address, hostname, warmed: true })
  writeFileSync(
    join(folder, 'pools.yaml'),
    JSON.stringify(
      {
        version: 1,
        default_pool: 'default',
        pools: {
          default: {
            ips: [
              ip('203.0.113.10', 'mta1.sternpost.test'),
              ip('203.0.113.11', 'mta2.sternpost.test'),
              ip('2001:db8::1', 'mta3.sternpost.test'),
            ],
          },
        },
      },
      null,
      1,
    ),
  )
  writeFileSync(
    join(folder, 'sternpost.yaml'),
    JSON.stringify({
      version: 1,
      hostname: 'mail.sternpost.test',
      secrets: { master_key: { file: join(folder, 'key') } },
      dns: { servers: [zone.server], timeout: '30s' },
      listen: { http: [], submission: [], inbound: [], metrics: null },
    }),
  )
  writeFileSync(join(folder, 'key'), Buffer.alloc(32, 1).toString('base64'), { mode: 0o600 })
  const { domains } = loadConfiguration({
    folder,
    shippedFolder: join(import.meta.dirname, '../../config'),
    offline: true,
    neededSecrets: 'none',
  }).server
  zone.set('10.113.0.203.in-addr.arpa', { PTR: ['mta1.sternpost.test'] })
  zone.set('11.113.0.203.in-addr.arpa', { PTR: ['static-11.hoster.test'] })
  zone.set('mta1.sternpost.test', { A: ['203.0.113.10'] })
  zone.set('mta2.sternpost.test', { A: ['203.0.113.99'] })
  zone.set('mta3.sternpost.test', { AAAA: ['2001:db8:0:0:0:0:0:1'] })
  zone.set(domains.targets.spf, { TXT: ['v=spf1 ip4:203.0.113.10 ip6:2001:db8::1 -all'] })
  const spf = domains.targets.spf
  const check = (...words: string[]) => sternpost(['check', '--dns', '--config', folder, ...words])
  const { code, stdout, stderr } = await check()
  t.match([code, stdout], [0, /is valid/])
  const warnings = stderr.split('\n').filter((line) => /(ptr|fcrdns|names): /.test(line))
  t.same(
    warnings.map((line) => line.replace(/^.*warning: /, '')),
    [
      'pools.default.ips[1]: fcrdns: the EHLO name mta2.sternpost.test leads to 203.0.113.99. Fix: add the record: ' +
        'mta2.sternpost.test. A 203.0.113.11',
      'pools.default.ips[1]: fcrdns: the reverse name is static-11.hoster.test, and the EHLO name is mta2.sternpost.test. ' +
        'Fix: at the hoster of the address, set the reverse DNS of 203.0.113.11 to mta2.sternpost.test (record: ' +
        '11.113.0.203.in-addr.arpa. PTR mta2.sternpost.test.)',
      `pools.default.ips[1]: names: SPF of ${spf} gives fail. Fix: set the record: ${spf}. TXT ` +
        '"v=spf1 ip4:203.0.113.10 ip4:203.0.113.11 ip6:2001:db8::1 -all"',
      'pools.default.ips[2]: ptr: there is no reverse name (PTR record). Fix: at the hoster of the address, set the ' +
        'reverse DNS of 2001:db8::1 to mta3.sternpost.test (record: ' +
        '1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. PTR mta3.sternpost.test.)',
    ],
  )
  t.match(warnings[0], /pools\.yaml:\d+:\d+: warning/)
  zone.set(domains.targets.spf, 'SERVFAIL')
  zone.set('mta1.sternpost.test', 'SERVFAIL')
  zone.set('10.113.0.203.in-addr.arpa', 'REFUSED')
  const silent = JSON.parse((await check('--json')).stdout)
  const messages: string[] = silent.map(({ message }: { message: string }) => message)
  for (const wanted of ['ptr: the DNS did not answer', 'fcrdns: the DNS did', `names: SPF of ${spf}: the DNS did`]) {
    t.ok(
      messages.some((message) => message.startsWith(wanted)),
      messages.join('\n'),
    )
  }
  t.match(await check('--offline'), { code: 64, stderr: /--dns needs the network/ })
  t.notMatch((await sternpost(['check', '--config', folder])).stderr, 'ptr: ')
})
