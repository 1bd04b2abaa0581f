/** What good files become: canonical values, derived names, drop-ins, secrets; and the pieces on their own. */
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { mergeDropIns } from '../../src/config/source/drop-ins.ts'
import { durationText, readDuration } from '../../src/config/settings/field-types.ts'
import { formulaCurves } from '../../src/config/read-parts.ts'
import { nearestName } from '../../src/config/settings/nearest-name.ts'
import { readHostName } from '../../src/config/settings/network-field-types.ts'
import { treeOf, valueOf } from '../../src/config/source/source-tree.ts'
import { expandFormula } from '../../src/config/settings/warmup-settings.ts'
import { FIXTURES, folderWith, load, MASTER_KEY, mistakesIn, overrides, SHIPPED } from './folders.ts'

const PRODUCTION = join(FIXTURES, 'production')

t.test('values come out in milliseconds, bytes and canonical names', async (t) => {
  const { 'secrets.master_key': key } = overrides(t)
  const { server, pools, warnings } = load({ folder: PRODUCTION, overrides: { 'secrets.master_key': key } })
  t.strictSame(server.delivery.retry, [120_000, 600_000])
  t.equal(server.delivery.timeouts.connect, 10_000)
  t.equal(server.delivery.timeouts.final_dot, 600_000, 'a key beside a given one keeps its default')
  t.equal(server.api.requests, null, '0 is no limit')
  t.strictSame(server.api.recipients, { count: 60_000, per_milliseconds: 60_000 })
  t.equal(server.retention.transcripts, 0)
  t.equal(server.http.max_body, 40 * 2 ** 20)
  t.ok(server.secrets.master_key.equals(MASTER_KEY), 'the key is read')
  const [, second] = pools.pools['transactional']?.ips ?? []
  t.match(second, { address: '2001:db8::25', source: 'fd00::25', weight: 100, warmed: false, curve: 'own' })
  t.equal(pools.pools['transactional']?.ips[0]?.source, '203.0.113.10', 'the address is bound where no source is given')
  t.strictSame(pools.pools['bulk']?.rate, { count: 20_000, per_milliseconds: 3_600_000 })
  t.equal(pools.pools['constructor'], undefined, 'pools have no prototype')
  t.strictSame(warnings, [])
})

t.test('names that are not given derive from the host name', async (t) => {
  const { 'secrets.master_key': key } = overrides(t)
  const { server } = load({ folder: PRODUCTION, overrides: { 'secrets.master_key': key } })
  t.equal(server.hostname, 'mx.sternpost.example')
  t.equal(server.node_id, 'mx.sternpost.example')
  t.equal(server.public_url, 'https://mx.sternpost.example')
  t.strictSame(server.domains.targets, {
    return_path: 'rp.mx.sternpost.example',
    spf: 'spf.mx.sternpost.example',
    tracking: 'track.mx.sternpost.example',
  })
  t.equal(server.inbound.complaint_address, 'fbl@mx.sternpost.example')
  t.equal(server.domains.dmarc_report_address, 'dmarc@mx.sternpost.example')
  t.equal(server.tracking.host, 'track.mx.sternpost.example')
  t.equal(server.backup.dir, '/var/lib/sternpost/backups')
})

t.test('variables say what a first start needs, and have the last word', async (t) => {
  const variables = {
    STERNPOST_HOSTNAME: 'mail.sternpost.example',
    STERNPOST_TRUSTED_PROXIES: '10.0.0.0/8, 192.0.2.0/24',
    STERNPOST_LOG_LEVEL: 'warn',
    STERNPOST_IPS: '203.0.113.10=127.0.0.5,203.0.113.11=127.0.0.6',
    STERNPOST_LOG_LEVLE: 'debug',
    STERNPOST_DATA_DIR: '',
  }
  Object.assign(process.env, variables)
  t.teardown(() => {
    for (const name of Object.keys(variables)) delete process.env[name]
  })
  const nowhere = join(t.testdir({}), 'nowhere')
  const { server, pools, warnings } = load({ folder: nowhere, overrides: overrides(t), offline: false })
  t.equal(server.hostname, 'mail.sternpost.example')
  t.strictSame(server.http.trusted_proxies, ['10.0.0.0/8', '192.0.2.0/24'])
  t.equal(server.data_dir, '/var/lib/sternpost', 'an empty variable is not set')
  t.match(pools.pools['default']?.ips, [
    { address: '203.0.113.10', source: '127.0.0.5', hostname: 'mail.sternpost.example' },
    { address: '203.0.113.11', source: '127.0.0.6', hostname: 'mta2.mail.sternpost.example' },
  ])
  const unknown = warnings.find(({ file }) => file === '$STERNPOST_LOG_LEVLE')
  t.match(unknown?.message, 'did you mean "STERNPOST_LOG_LEVEL"?')

  const production = load({ folder: PRODUCTION, overrides: overrides(t) })
  t.equal(production.server.log.level, 'warn', 'over a file')
  t.equal(production.pools.pools['transactional']?.ips[0]?.address, '203.0.113.10', 'IPs stand where pools.yaml is')
  t.ok(production.warnings.some(({ file, message }) => file === '$STERNPOST_IPS' && /is not used/.test(message)))

  delete process.env['STERNPOST_HOSTNAME']
  const settings = { overrides: overrides(t), neededSecrets: 'none' } as const
  const named = folderWith(t, { 'sternpost.yaml': 'version: 1\nhostname: mx.sternpost.example\n' })
  const { ips } = load({ folder: named, ...settings }).pools.pools['default'] ?? {}
  t.equal(ips?.[0]?.hostname, 'mx.sternpost.example', 'the host name of a file names the IPs too')
  process.env['STERNPOST_HOSTNAME'] = variables.STERNPOST_HOSTNAME

  process.env['STERNPOST_LOG_LEVEL'] = 'loud'
  process.env['STERNPOST_IPS'] = '198.51.100.7'
  const mistakes = mistakesIn({ folder: nowhere, overrides: overrides(t), offline: false })
  const errors = mistakes.filter(({ severity }) => severity === 'error').map(({ file, path }) => [file, path])
  t.strictSame(
    errors,
    [
      ['$STERNPOST_LOG_LEVEL', 'log.level'],
      ['$STERNPOST_IPS', 'pools.default.ips[0].address'],
    ].toSorted(),
  )
})

t.test('the URL of PostgreSQL stands in the file, in a file of its own or in a variable', (t) => {
  const settings = { folder: PRODUCTION, overrides: overrides(t) }
  const storageOf = (storage: unknown) =>
    load({ ...settings, overrides: { ...settings.overrides, storage } }).server.storage
  const urlOf = (url: unknown): string | null => storageOf({ engine: 'postgres', url }).url
  const libpq = 'uselibpqcompat=true'
  // As pg 8 takes `require`, without the last parameter, it is verify-full.
  t.equal(urlOf('postgres://me@db.example.com/mail'), `postgres://me@db.example.com/mail?sslmode=require&${libpq}`)
  t.equal(urlOf('postgres://db/mail?sslmode=disable'), `postgres://db/mail?sslmode=disable&${libpq}`)
  for (const here of ['127.0.0.1', '[::1]:5433', 'localhost', '%2Frun%2Fpostgresql', '']) {
    t.equal(urlOf(`postgresql://${here}/mail`), `postgresql://${here}/mail?sslmode=disable&${libpq}`)
  }
  const both = `host=a%2Cfd00%3A%3A1&port=5432%2C5433&sslmode=require&${libpq}`
  t.equal(
    urlOf('postgres://me@a,[fd00::1]:5433/mail?target_session_attrs=read-write'),
    `postgres://me@localhost/mail?${both}`,
  )
  t.match(urlOf('postgres://127.0.0.1,[::1]/mail'), /sslmode=disable/)
  t.match(urlOf('postgres://127.0.0.1,db/mail'), /sslmode=require/)
  t.match(urlOf('postgres://me@/mail?host=/run/postgresql'), /host=%2Frun%2Fpostgresql&sslmode=disable/)

  const file = join(t.testdirName, 'url')
  writeFileSync(file, 'postgres://me:pass%40word@db/mail\n', { mode: 0o640 })
  t.equal(urlOf({ file }), `postgres://me:pass%40word@db/mail?sslmode=require&${libpq}`)
  t.equal(storageOf({ url: 'postgres://db/mail' }).engine, 'sqlite', 'a URL alone chooses nothing')

  t.teardown(() => delete process.env['STERNPOST_DATABASE_URL'])
  for (const given of ['postgres://me:word@db/mail', file]) {
    process.env['STERNPOST_DATABASE_URL'] = given
    const { server } = load(settings)
    t.match(server.storage, { engine: 'postgres', url: /^postgres:..me:\S+@db.mail/ })
  }
  process.env['STERNPOST_DATABASE_URL'] = 'postgres://me:word@db'
  const [mistake] = mistakesIn(settings)
  t.match(mistake, { file: '$STERNPOST_DATABASE_URL', path: 'storage.url', message: /names no database/ })
  t.notMatch(mistake?.message, 'word@')
  t.end()
})

t.test('"no such name" is kept 5m at most, and a longer time is a warning', async (t) => {
  const cacheOf = (denial: string) => {
    const given = { ...overrides(t), 'dns.cache.negative_ttl': denial }
    const { server, warnings } = load({ folder: PRODUCTION, overrides: given })
    const told = warnings.filter(({ path }) => path === 'dns.cache.negative_ttl').map(({ message }) => message)
    return { kept: server.dns.cache.negative_ttl, told }
  }
  const why = 'a kept "no such name" would confirm itself, and end mail'
  t.strictSame(cacheOf('10m'), { kept: 300_000, told: [`10m is above 5m, which is used: ${why}`] })
  t.strictSame(cacheOf('4m'), { kept: 240_000, told: [] })
})

t.test('overrides win over the files, and the result is frozen plain data', async (t) => {
  const configuration = load({
    folder: PRODUCTION,
    overrides: {
      ...overrides(t),
      public_url: 'http://127.0.0.1:8025/',
      'operator.webhook': 'https://hooks.example.com/sternpost/?to=ops/#part',
      'listen.metrics': null,
      'backup.schedule': null,
    },
  })
  t.equal(configuration.server.public_url, 'http://127.0.0.1:8025')
  t.equal(
    configuration.server.operator.webhook,
    'https://hooks.example.com/sternpost/?to=ops/',
    'as it is written, without the fragment',
  )
  t.equal(configuration.server.listen.metrics, null)
  t.equal(configuration.server.backup.schedule, null)
  t.throws(() => Object.assign(configuration.server.delivery, { port: 26 }), TypeError)
  t.throws(() => configuration.server.delivery.retry.push(1), TypeError)
  t.equal(structuredClone(configuration).pools.pools['bulk']?.ips[0]?.address, '203.0.113.11')
})

t.test('drop-ins merge by key and by name, in lexical order', async (t) => {
  const shipped = load({ folder: SHIPPED, overrides: overrides(t) })
  const { warmup, providers, bounces } = load({ folder: PRODUCTION, overrides: overrides(t) })
  t.strictSame(
    bounces.rules.slice(0, 2).map(({ id }) => id),
    ['first', 'our-gateway'],
    'new rules are tried first',
  )
  t.equal(bounces.rules.length, shipped.bounces.rules.length + 1, 'one more than before: two added, one removed')
  t.notOk(
    bounces.rules.some(({ id }) => id === 'policy-more'),
    'null removes a rule',
  )
  const moved = shipped.bounces.rules.find(({ id }) => id === 'moved')
  t.strictSame(
    bounces.rules.find(({ id }) => id === 'moved'),
    { ...moved, suppress: 'second' },
  )
  t.strictSame(
    providers.providers['google'],
    { ...shipped.providers.providers['google'], connections: 3, mx_suffixes: ['google.com', 'googlemail.com'] },
    'a list without names is replaced',
  )
  t.equal(providers.providers['yahoo']?.connections, 10, 'what a block says itself stays')
  t.equal(providers.providers['proofpoint']?.connections, 8, 'what it leaves out is that of the default block')
  t.equal(providers.providers['qq'], undefined)
  t.equal(providers.providers['campus']?.isp, 'campus', 'the isp is the id where none is given')
  const unusual = providers.replies.find(({ id }) => id === 'google-unusual-rate')
  t.strictSame(unusual?.when, { count: 1, within_milliseconds: null }, 'null removes a key')
  t.equal(unusual?.for, 1_800_000)
  t.equal(providers.replies[0]?.id, 'campus-slow')
  t.equal(warmup.defaults.hold.deferral, 0.1)
  t.equal(warmup.defaults.hold.complaint, 0.001)
  t.equal(warmup.defaults.provider_share.gmail, 0.4)
})

t.test('a curve has the defaults it does not override', async (t) => {
  const { warmup } = load({ folder: PRODUCTION, overrides: overrides(t) })
  const { own, standard } = warmup.curves
  t.match(own?.hold, { hard_bounce: 0.02, deferral: 0.1, complaint: 0.001 })
  t.match(standard?.hold, { hard_bounce: 0.03, deferral: 0.1 })
  t.strictSame(own?.stages.slice(0, 6), [50, 70, 98, 140, 190, 270])
  t.equal(own?.stages.at(-1), 50_000)
})

t.test('a drop-in for IPs merges by canonical address, adds at the end, and may say off', async (t) => {
  const at = (file: string): { file: string; line: number; column: number } => ({ file, line: 1, column: 1 })
  const ips = [{ address: '2001:db8::1', weight: 1 }, { address: '192.0.2.1' }]
  const base = treeOf({ pools: { a: { ips } } }, at('base'))
  const change = (value: unknown): unknown => valueOf(mergeDropIns(base, [treeOf(value, at('change'))]))
  const pools = (ips: unknown): unknown => ({ pools: { a: { ips } } })
  t.same(
    change(pools([{ address: '2001:DB8::1', warmed: true }, { address: '192.0.2.2' }])),
    pools([{ address: '2001:DB8::1', weight: 1, warmed: true }, { address: '192.0.2.1' }, { address: '192.0.2.2' }]),
  )
  t.same(
    change(pools({ '192.0.2.1': null, '192.0.2.3': { weight: 5 } })),
    pools([
      { address: '2001:db8::1', weight: 1 },
      { address: '192.0.2.3', weight: 5 },
    ]),
  )
  t.same(change({ pools: { a: null, ips: { ips: [{ address: '192.0.2.4', weight: null }] } } }), {
    pools: { ips: { ips: [{ address: '192.0.2.4', weight: null }] } },
  })
  t.match(change({ listen: { metrics: null }, dns: { timeout: null } }), { listen: { metrics: null }, dns: {} })
})

t.test('files in a drop-in folder with other names are warned about', async (t) => {
  const settings = overrides(t)
  const folder = folderWith(t, {
    'pools.d/.gitkeep': '',
    'pools.d/notes.txt': 'x',
    'pools.d/1-a.yaml': 'x',
    'pools.d/10-a.yml': 'x',
  })
  const warnings = mistakesIn({ folder, overrides: settings, neededSecrets: 'none' })
  const unread = warnings.filter(({ message }) => message.startsWith('is not read'))
  t.strictSame(
    unread.map(({ file }) => file.slice(folder.length + 1)),
    ['pools.d/1-a.yaml', 'pools.d/10-a.yml', 'pools.d/notes.txt'],
  )
})

t.test('a syntax error in a drop-in is told there, and its file is judged no further', async (t) => {
  const settings = overrides(t)
  const dropIn = 'providers: { a: { tls: 1 } }\n'
  const folder = folderWith(t, { 'pools.d/10-a.yaml': 'pools: [\n', 'providers.d/10-a.yaml': dropIn })
  const errors = mistakesIn({ folder, overrides: settings, neededSecrets: 'none' }).filter(
    ({ severity }) => severity === 'error',
  )
  t.strictSame(
    errors.map(({ file, path }) => [file.slice(folder.length + 1), path]),
    [
      ['pools.d/10-a.yaml', ''],
      ['providers.d/10-a.yaml', 'providers.a.tls'],
    ],
  )
})

t.test('a secret is read from a file or a credential, and refused when others can read it', async (t) => {
  const folder = t.testdir({})
  const file = join(folder, 'master.key')
  const problems = (secret: unknown, credentialsFolder?: string): string[] =>
    mistakesIn({ folder: PRODUCTION, overrides: { 'secrets.master_key': secret }, credentialsFolder }).map(
      ({ path, message }) => `${path}: ${message}`,
    )
  const write = (text: string, mode: number): void => {
    writeFileSync(file, text)
    chmodSync(file, mode)
  }
  write(MASTER_KEY.toString('base64'), 0o640)
  t.strictSame(problems({ file }), [], 'the group may read')
  t.strictSame(problems({ credential: 'master.key' }, folder), [])
  write(MASTER_KEY.toString('base64'), 0o644)
  t.strictSame(problems({ file }), [`secrets.master_key: others can use ${file}; run chmod o= ${file}`])
  write(MASTER_KEY.toString('hex'), 0o600)
  t.match(problems({ file }), ['secrets.master_key: the master key must be 32 bytes in base64; make one with: openssl'])
  write(MASTER_KEY.subarray(1).toString('base64'), 0o600)
  t.match(problems({ file }), ['secrets.master_key: the master key must be 32 bytes in base64'])
  write(' \n', 0o600)
  t.strictSame(problems({ file }), [`secrets.master_key: ${file} is empty`])
  chmodSync(folder, 0o755)
  t.strictSame(problems({ file: folder }), [`secrets.master_key: cannot read ${folder}: is a folder, not a file`])
  t.strictSame(problems({ file: `${file}x` }), [`secrets.master_key: there is no file ${file}x`])
  t.match(problems({ credential: 'other' }, folder), ['secrets.master_key: there is no file'])
})

t.test('a command that only looks may not see a credential', async (t) => {
  const options = { folder: PRODUCTION, overrides: { 'secrets.master_key': { credential: 'master.key' } } }
  const { server, warnings } = load({ ...options, credentialsFolder: '/nowhere', neededSecrets: 'none' })
  t.equal(server.secrets.master_key.length, 0)
  t.match(warnings, [{ path: 'secrets.master_key', severity: 'warning' }])
})

t.test('a check needs secret files, and credentials only where the service has them', async (t) => {
  const severities = (secret: unknown, credentialsFolder?: string): string[] =>
    mistakesIn({
      folder: PRODUCTION,
      overrides: { 'secrets.master_key': secret },
      credentialsFolder,
      neededSecrets: 'files',
    }).map(({ severity }) => severity)
  t.strictSame(severities({ credential: 'master.key' }), ['warning'])
  t.strictSame(severities({ credential: 'master.key' }, '/nowhere'), ['error'])
  t.strictSame(severities({ file: '/nowhere/master.key' }), ['error'])
})

t.test('durations read back as they are written', async (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 315_360_000_000 }), (milliseconds) => {
      const reading = readDuration(durationText(milliseconds))
      return !reading.ok || reading.value === milliseconds
    }),
  )
  t.equal(durationText(90_000), '90s')
  t.equal(durationText(86_400_000), '1d')
})

t.test('host names are lower-case A-labels without the dot of the root', async (t) => {
  const names = { 'Bücher.Example.': 'xn--bcher-kva.example', 'MX.example': 'mx.example', localhost: 'localhost' }
  for (const [name, expected] of Object.entries(names)) t.strictSame(readHostName(name), { ok: true, value: expected })
  const long = `${'a'.repeat(64)}.b`
  for (const bad of ['', '.', 'a..b', '-a.b', 'a_b.c', 'a b', 'exa%6dple.com', '1.2.3.4', '0x7f.1', long, 5]) {
    t.notOk(readHostName(bad).ok, String(bad))
  }
})

t.test('formulas never fall and end at their maximum', async (t) => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 500 }),
      fc.double({ min: 1, max: 10, noNaN: true }),
      fc.integer({ min: 500, max: 10_000_000 }),
      (start, factor, max) => {
        const stages = expandFormula({ start, factor, max })
        return stages.length <= 120 && stages.every((stage, index) => stage <= max && stage >= (stages[index - 1] ?? 1))
      },
    ),
  )
  t.strictSame(expandFormula({ start: 100, factor: 2, max: 1_234 }), [100, 200, 400, 800, 1_234])
  const formulas = '{ own: { formula: { start: 100, factor: 2, max: 400 } }, bad: { formula: { start: 100 } } }'
  const folder = folderWith(t, { 'warmup.d/10-own.yaml': `curves: ${formulas.replace(/, bad.*/, ' }')}\n` })
  t.strictSame(formulaCurves(folder, SHIPPED), [{ name: 'own', stages: [100, 200, 400] }], 'as `sternpost check` shows')
  t.strictSame(formulaCurves(folderWith(t, { 'warmup.d/10-own.yaml': `curves: ${formulas}\n` }), SHIPPED), [])
})

t.test('the nearest name is one slip away, or none', async (t) => {
  t.equal(nearestName('wieght', ['address', 'weight']), 'weight')
  t.equal(nearestName('TIMEOUT', ['timeout']), 'timeout')
  t.equal(nearestName('qqq', ['timeout', 'tries']), null)
  t.equal(nearestName('x', []), null)
})
