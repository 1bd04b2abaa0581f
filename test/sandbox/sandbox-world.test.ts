/**
 * The small world around the sandbox: its DNS, its settings, its data folder, its first start and its banner.
 */
import { createSecretKey } from 'node:crypto'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'
import { ProcessExit, ServiceError } from '../../src/base/errors.ts'
import { createLogger } from '../../src/base/logger.ts'
import { loadConfiguration } from '../../src/config/load-configuration.ts'
import { bounceFor, createClassifier } from '../../src/mail/reply/classify-reply.ts'
import { readSmtpReply } from '../../src/mail/reply/smtp-reply.ts'
import { createAdjustableClock } from '../../src/sandbox/adjustable-clock.ts'
import { bannerLine, bannerText } from '../../src/sandbox/banner.ts'
import { choosePort } from '../../src/sandbox/sandbox-settings.ts'
import { prepareDataFolder, readApiKey } from '../../src/sandbox/data-folder.ts'
import { openHookSecrets } from '../../src/sandbox/hook-secrets.ts'
import { createSandbox, type Sandbox } from '../../src/sandbox/sandbox.ts'
import { createSandboxResolver } from '../../src/sandbox/sandbox-resolver.ts'
import { sandboxOverrides } from '../../src/sandbox/sandbox-settings.ts'
import { behaviourOf } from '../../src/capture/simulated-recipients.ts'
import { devServer } from './dev-server.ts'
import { sendMail } from './smtp-dialogue.ts'

const logger = createLogger({ level: 'silent' })
const PORTS = { port: 9_000, capturePort: 9_001, submissionPort: 9_002, inboundPort: 9_003 }
const SHIPPED = fileURLToPath(new URL('../../config', import.meta.url))

function temporaryFolder(t: { teardown(work: () => void): void }): string {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-sandbox-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const mode = (path: string): string => (statSync(path).mode & 0o777).toString(8)

t.test('every domain leads to the capture server, and every record we ask for is published', async (t) => {
  const asked: string[] = []
  const resolver = createSandboxResolver({
    captureHostName: 'mx.capture.test',
    egressIps: () => [],
    publishedRecords: async (name) => {
      asked.push(name)
      if (name === 'broken.test') throw new Error('the store does not answer')
      if (name === 'circle.test') return [{ type: 'CNAME', name, value: 'circle.test' }]
      return [
        { type: 'TXT', name: 'ps1._domainkey.acme.com', value: 'v=DKIM1; p=MIIB' },
        { type: 'CNAME', name: 'bounces.acme.com', value: 'rp.sternpost.test' },
        { type: 'TXT', name: 'rp.sternpost.test', value: 'v=spf1 -all' },
        { type: 'MX', name: 'rp.sternpost.test', value: '10 Mail.Sternpost.test.' },
      ]
    },
  })
  const found = (...records: unknown[]) => ({ kind: 'found', records })
  t.strictSame(await resolver.mx('example.com'), found({ priority: 10, exchange: 'mx.capture.test' }))
  t.match(await resolver.mx('Gmail.com.'), found({ priority: 10, exchange: 'gmail-smtp-in.l.google.com' }))
  for (const [domain, end] of [
    ['outlook.com', '.olc.protection.outlook.com'],
    ['yahoo.com', '.yahoodns.net'],
    ['icloud.com', '.mail.icloud.com'],
    ['gmx.net', '.gmx.net'],
  ] as const) {
    const answer = await resolver.mx(domain)
    t.ok(answer.kind === 'found' && answer.records.every(({ exchange }) => exchange.endsWith(end)), domain)
  }
  t.strictSame(await resolver.mx('bounces.acme.com'), found({ priority: 10, exchange: 'mail.sternpost.test' }))
  t.strictSame(await resolver.txt('PS1._domainkey.acme.com'), found('v=DKIM1; p=MIIB'))
  t.ok(asked.includes('ps1._domainkey.acme.com'), 'names are asked for in lower case')
  t.strictSame(await resolver.cname('bounces.acme.com'), found('rp.sternpost.test'))
  t.strictSame(await resolver.txt('bounces.acme.com'), found('v=spf1 -all'), 'an alias is followed')
  t.strictSame(await resolver.txt('example.com'), { kind: 'no-record' })
  t.strictSame(await resolver.cname('example.com'), { kind: 'no-record' })
  t.strictSame(await resolver.txt('circle.test'), { kind: 'no-record' }, 'a circle of aliases ends')
  t.match(await resolver.txt('broken.test'), { kind: 'no-answer', reason: 'the store does not answer' })
  t.match(await resolver.mx('broken.test'), { kind: 'no-answer' })
  t.strictSame(await resolver.mx('unverified.test'), found({ priority: 10, exchange: 'mx.capture.test' }))
  t.strictSame(await resolver.addresses('anything.example', 4), found('127.0.0.1'))
  t.strictSame(await resolver.addresses('anything.example', 6), { kind: 'no-record' })
})

t.test('below unverified.test every record is published with a mistake that people make', async (t) => {
  const rsa = `v=DKIM1; k=rsa; p=${'MIIB'.repeat(98)}`
  const ed25519 = 'v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo='
  const resolver = createSandboxResolver({
    captureHostName: 'mx.capture.test',
    egressIps: () => [],
    publishedRecords: async () => [
      { type: 'TXT', name: 'ps1._domainkey.shop.unverified.test', value: rsa },
      { type: 'TXT', name: 'ps2._domainkey.shop.unverified.test', value: ed25519 },
      { type: 'CNAME', name: 'bounces.shop.unverified.test', value: 'rp.sternpost.test' },
      { type: 'TXT', name: '_dmarc.shop.unverified.test', value: 'v=DMARC1; p=none' },
      { type: 'TXT', name: 'ps1._domainkey.shopunverified.test', value: rsa },
    ],
  })
  const found = (...records: unknown[]) => ({ kind: 'found', records })
  t.strictSame(await resolver.txt('PS1._domainkey.shop.Unverified.test.'), found(rsa.slice(0, 255)), 'cut at 255 bytes')
  const atNext = await resolver.txt('ps2._domainkey.shop.unverified.test')
  t.strictSame(atNext, found(ed25519.slice(0, -8)), 'cut at all events')
  t.strictSame(await resolver.cname('bounces.shop.unverified.test'), found('another-host.unverified.test'))
  const atBounces = await resolver.txt('bounces.shop.unverified.test')
  t.strictSame(atBounces, found('v=spf1 ip4:192.0.2.1 -all'), 'SPF of another host')
  t.strictSame(await resolver.txt('_dmarc.shop.unverified.test'), { kind: 'no-record' }, 'forgotten')
  t.strictSame(await resolver.txt('ps1._domainkey.shopunverified.test'), found(rsa), 'only below the name')
  t.strictSame(await resolver.addresses('t.shop.unverified.test', 4), found('192.0.2.1'))
  t.match(await resolver.mx('shop.unverified.test'), found({ exchange: 'mx.capture.test' }), 'mail to it is captured')
})

t.test('the settings of the sandbox are valid over the shipped files and stay on loopback', async (t) => {
  const dataFolder = join(temporaryFolder(t), 'data')
  prepareDataFolder({ folder: dataFolder, isFresh: false })
  const overrides = sandboxOverrides({ ...PORTS, dataFolder })
  const { server, pools } = loadConfiguration({ folder: SHIPPED, shippedFolder: SHIPPED, overrides })
  t.match(server.listen, {
    http: [{ address: '127.0.0.1', port: 9_000, tls: false, serve: ['api', 'tracking', 'console'] }],
    submission: [{ address: '127.0.0.1', port: 9_002, tls: 'none' }],
    inbound: [{ address: '127.0.0.1', port: 9_003 }],
    metrics: null,
    admin_socket: join(dataFolder, 'admin.sock'),
  })
  t.equal(server.data_dir, dataFolder)
  t.equal(server.public_url, 'http://127.0.0.1:9000')
  t.equal(server.secrets.master_key.toString('base64'), readFileSync(join(dataFolder, 'master.key'), 'utf8'))
  t.match(server.delivery, { port: 9_001, allow_private_addresses: true })
  t.match(server.webhooks, { allow_http: true, allow_private_addresses: true })
  t.equal(server.backup.schedule, null)
  t.ok(
    Object.values(pools.pools)
      .flatMap(({ ips }) => ips)
      .every(({ address }) => address.startsWith('127.')),
  )
})

t.test('the shipped rules read the refusals of simulated recipients as they are meant', async (t) => {
  const dataFolder = join(temporaryFolder(t), 'data')
  prepareDataFolder({ folder: dataFolder, isFresh: false })
  const overrides = sandboxOverrides({ ...PORTS, dataFolder })
  const { bounces } = loadConfiguration({ folder: SHIPPED, shippedFolder: SHIPPED, overrides })
  const classify = createClassifier(bounces.rules)
  for (const [name, type, category] of [
    ['hard', 'hard', 'invalid_recipient'],
    ['soft', 'soft', 'mailbox_full'],
    ['block', 'block', 'ip_block'],
    ['deferred', 'soft', 'system_error'],
    ['greylisted', 'soft', 'greylist'],
  ] as const) {
    const behaviour = behaviourOf(`${name}@simulator.sternpost.test`)
    const reply = readSmtpReply(behaviour.kind === 'refuse' ? `${behaviour.code} ${behaviour.text}` : '')
    if (reply === undefined) throw new Error(`${name} is not refused`)
    t.equal(classify(reply, 'rcpt', null).category, category, name)
    t.equal(bounceFor(category, reply, '').type, type, name)
  }
})

t.test('the data folder is private, marked, and deleted only when it is ours', async (t) => {
  const parent = temporaryFolder(t)
  const folder = join(parent, 'deep', 'data')
  prepareDataFolder({ folder, isFresh: false })
  t.equal(mode(folder), '700')
  t.equal(mode(join(folder, 'master.key')), '600')
  const masterKey = readFileSync(join(folder, 'master.key'), 'utf8')
  t.equal(Buffer.from(masterKey, 'base64').length, 32)
  writeFileSync(join(folder, 'sternpost.db'), 'rows')
  prepareDataFolder({ folder, isFresh: false })
  t.equal(readFileSync(join(folder, 'master.key'), 'utf8'), masterKey, 'the key stays with its database')
  prepareDataFolder({ folder, isFresh: true })
  t.notOk(existsSync(join(folder, 'sternpost.db')), '--fresh starts over')
  t.not(readFileSync(join(folder, 'master.key'), 'utf8'), masterKey)

  const running = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)', 'sandbox'])
  await once(running, 'spawn')
  writeFileSync(join(folder, 'process-id'), String(running.pid))
  const inUse = { exitCode: 75, message: /stop it first/ }
  for (const isFresh of [true, false]) {
    t.throws(() => prepareDataFolder({ folder, isFresh }), inUse)
    t.throws(() => prepareDataFolder({ folder, isFresh, processesAt: join(parent, 'none') }), inUse, 'as on macOS')
  }
  running.kill()
  await once(running, 'exit')
  prepareDataFolder({ folder, isFresh: true })
  writeFileSync(join(folder, 'process-id'), String(process.ppid))
  prepareDataFolder({ folder, isFresh: true, processesAt: join(parent, 'none') })

  const empty = join(parent, 'empty')
  mkdirSync(empty)
  chmodSync(empty, 0o755)
  prepareDataFolder({ folder: empty, isFresh: true })
  t.equal(mode(empty), '700')

  const deep = join(parent, 'x'.repeat(80), 'data')
  const tooLong = { exitCode: 64, message: /too long for the socket in it; choose a shorter --data folder$/ }
  t.throws(() => prepareDataFolder({ folder: deep, isFresh: false }), tooLong)
  t.notOk(existsSync(deep))

  const foreign = join(parent, 'foreign')
  mkdirSync(foreign)
  writeFileSync(join(foreign, 'thesis.txt'), 'three years')
  for (const isFresh of [true, false]) {
    const refusal = { exitCode: 64, message: /holds files that are not the sandbox's/ }
    t.throws(() => prepareDataFolder({ folder: foreign, isFresh }), refusal)
  }
  t.equal(readFileSync(join(foreign, 'thesis.txt'), 'utf8'), 'three years')
  t.notOk(existsSync(join(foreign, 'master.key')))
})

t.test('a taken port is an error when it was asked for, else the next one is used', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const choose = (wanted: number | null) => choosePort({ wanted, usual: 8_025, option: '--port' })
  const thrown: unknown = await choose(port).catch((error: unknown) => error)
  t.ok(thrown instanceof ProcessExit)
  t.match(thrown, { exitCode: 75, message: new RegExp(`port ${port} is taken .* --port`) })
  server.close()
  await once(server, 'close')
  t.equal(await choose(port), port)
  const free = await choose(null)
  t.ok(free >= 8_025)
  t.ok((await choosePort({ wanted: null, usual: free, option: '--port' }, [free])) > free, 'nor one that we use')
})

interface Calls {
  domains: string[]
  keys: object[]
  webhooks: { url: string; events: string[] }[]
  warmups: string[]
}

function sandboxIn(dataFolder: string, baseUrl: string): Sandbox {
  return createSandbox({
    baseUrl,
    dataFolder,
    keep: 10,
    logger,
    inboundPort: 9,
    clock: createAdjustableClock({ speed: 1, ahead: 0 }),
    onClockChange: () => {},
    egressIps: () => [],
    publishedRecords: async () => [],
    verifyDkim: async () => ({ result: 'pass', domain: 'sandbox.test', selector: 'ps1' }),
    bounceKey: async () => createSecretKey(Buffer.alloc(32)),
  })
}

function features(calls: Calls, isVerified = true): Parameters<Sandbox['firstStart']>[0] {
  return {
    addDomain: async (name) => calls.domains.push(name),
    verifyDomain: async () => ({ verified: isVerified }),
    createKey: async (request) => {
      calls.keys.push(request)
      return { key: `sk_test_${calls.keys.length}` }
    },
    isKeyRevoked: async (key) => key !== `sk_test_${calls.keys.length}`,
    startWarmup: async (ip) => void calls.warmups.push(ip),
    registerWebhook: async ({ url, events }) => {
      calls.webhooks.push({ url, events })
      return { endpoint: { id: `wh_${calls.webhooks.length}` }, secret: `whsec_${calls.webhooks.length}` }
    },
  }
}

t.test('the first start makes domain, key and endpoint; later starts find them', async (t) => {
  const dataFolder = join(temporaryFolder(t), 'data')
  prepareDataFolder({ folder: dataFolder, isFresh: false })
  const calls: Calls = { domains: [], keys: [], webhooks: [], warmups: [] }
  const first = sandboxIn(dataFolder, 'http://127.0.0.1:8025')
  await t.rejects(first.firstStart(features(calls, false)), /sandbox\.test could not be verified/)
  t.equal(calls.keys.length, 0)
  t.same(await first.firstStart(features(calls)), { key: 'sk_test_1' })
  t.strictSame(calls.keys, [{ name: 'sandbox', mode: 'test', scopes: ['admin'] }])
  t.strictSame(calls.webhooks, [
    {
      url: 'http://127.0.0.1:8025/dev/hooks/inspector',
      events: ['email.delivered', 'email.bounced', 'email.complained', 'email.opened', 'email.clicked'],
    },
  ])
  t.equal(readApiKey(dataFolder), 'sk_test_1')
  for (const name of ['key', 'hooks.json']) t.equal(mode(join(dataFolder, name)), '600', name)

  t.same(await sandboxIn(dataFolder, 'http://127.0.0.1:8025').firstStart(features(calls)), { key: 'sk_test_1' })
  calls.keys.push({ name: 'in place of one that was revoked' })
  for (const _start of [1, 2]) {
    const { key } = await sandboxIn(dataFolder, 'http://127.0.0.1:8025').firstStart(features(calls))
    t.equal(key, 'sk_test_3', 'one that was revoked is not shown again')
  }
  t.same(calls.warmups, ['127.0.0.12'], 'the warmup is begun once')
  t.equal(calls.webhooks.length, 1)
  t.same([...new Set(calls.domains)], ['sandbox.test'])
})

t.test('on another port the endpoint of the inspector moves along', async (t) => {
  const dataFolder = join(temporaryFolder(t), 'data')
  prepareDataFolder({ folder: dataFolder, isFresh: false })
  const calls: Calls = { domains: [], keys: [], webhooks: [], warmups: [] }
  const moves: unknown[] = []
  const moving = {
    ...features(calls),
    updateWebhook: async (id: string, { url }: { url: string }) => void moves.push([id, url]),
  }
  const gone = { ...moving, updateWebhook: async () => Promise.reject(new ServiceError('not_found', 'wh_1')) }
  const onPort = (port: number): Sandbox => sandboxIn(dataFolder, `http://127.0.0.1:${port}`)
  const urls = (): string[] => calls.webhooks.map(({ url }) => url)
  await onPort(8025).firstStart(moving)
  await onPort(9000).firstStart(moving)
  await onPort(9000).firstStart(moving)
  t.strictSame(moves, [['wh_1', 'http://127.0.0.1:9000/dev/hooks/inspector']])
  t.strictSame(urls(), ['http://127.0.0.1:8025/dev/hooks/inspector'])
  t.same(openHookSecrets(join(dataFolder, 'hooks.json')).secretsFor('inspector'), ['whsec_1'])
  await onPort(9001).firstStart(gone)
  t.equal(urls().at(-1), 'http://127.0.0.1:9001/dev/hooks/inspector', 'a new one in place of one that was removed')
  await onPort(9000).firstStart({ ...moving, registerWebhook: async () => Promise.reject(new Error('none is needed')) })
  t.strictSame(moves.at(-1), ['wh_2', 'http://127.0.0.1:9000/dev/hooks/inspector'], 'which moves along from then on')
  await onPort(9002).firstStart(features(calls))
  t.equal(urls().at(-1), 'http://127.0.0.1:9002/dev/hooks/inspector', 'a new one where none can be changed')
})

t.test('the inspector learns the secrets of endpoints that point at it, and of no others', async (t) => {
  const dataFolder = join(temporaryFolder(t), 'data')
  prepareDataFolder({ folder: dataFolder, isFresh: false })
  let endpoints = 0
  const { register, update, rotateSecret } = sandboxIn(dataFolder, 'http://127.0.0.1:8025').notingSecrets({
    register: async ({ secret }: { url: string; secret: string | null }) => ({
      endpoint: { id: `wh_${(endpoints += 1)}` },
      secret: secret === null ? 'generated' : null,
    }),
    update: async (_id: string, _change: { url?: string; status?: string }) => {},
    rotateSecret: async (_id: string, { secret }: { secret: string | null }) => ({
      secret: secret === null ? `rotated ${(endpoints += 1)}` : null,
    }),
  })
  const secretsFor = (name: string): string[] => openHookSecrets(join(dataFolder, 'hooks.json')).secretsFor(name)
  const answer = await register({ url: 'http://127.0.0.1:8025/dev/hooks/mine', secret: 'given' })
  t.same(answer, { endpoint: { id: 'wh_1' }, secret: null })
  await register({ url: 'http://127.0.0.1:8025/dev/hooks/mine/', secret: null })
  await register({ url: 'https://app.acme.com/hooks', secret: 'not ours' })
  t.same(secretsFor('mine'), ['given', 'generated'])
  t.same(await rotateSecret('wh_2', { secret: null }), { secret: 'rotated 4' })
  t.same(secretsFor('mine'), ['given', 'generated', 'rotated 4'], 'the old one signs for a while')
  await rotateSecret('wh_2', { secret: 'the next' })
  t.same(secretsFor('mine'), ['given', 'rotated 4', 'the next'])
  await rotateSecret('wh_3', { secret: 'not ours either' })
  await update('wh_1', { url: 'http://127.0.0.1:8025/dev/hooks/other' })
  await update('wh_1', { status: 'disabled' })
  t.same([secretsFor('mine'), secretsFor('other')], [['rotated 4', 'the next'], ['given']], 'and where they point')
  t.notMatch(readFileSync(join(dataFolder, 'hooks.json'), 'utf8'), 'not ours')
  writeFileSync(join(dataFolder, 'hooks.json'), '[{"url":7}]')
  t.throws(() => openHookSecrets(join(dataFolder, 'hooks.json')), /damaged; start over with --fresh/)
})

t.test('capture server, inbox and routes work together, and the end does not wait for those who wait', async (t) => {
  const dataFolder = join(temporaryFolder(t), 'data')
  prepareDataFolder({ folder: dataFolder, isFresh: false })
  let sandbox: Sandbox | undefined
  const dev = await devServer((baseUrl) => {
    sandbox = sandboxIn(dataFolder, baseUrl)
    return sandbox.middleware
  })
  const port = (await sandbox?.start()) ?? 0
  const other = sandboxIn(dataFolder, dev.baseUrl)
  const otherPort = await other.start()
  t.not(otherPort, port, 'two sandboxes on one machine')
  const to = 'delivered@simulator.sternpost.test'
  t.match(await sendMail({ port, to, message: 'Subject: Hello\r\n\r\nHi' }), /^250 /)
  t.match((await dev.get('/dev/inbox?wait=60s')).data, [{ subject: 'Hello', dkim: { result: 'pass' } }])
  const waiting = dev.get('/dev/inbox?to=nobody@example.com&wait=60s')
  sandbox?.endWaits()
  t.same((await waiting).data, [])
  await other.stop()
  await sandbox?.stop()
  await dev.close()
})

t.test('the banner says where everything is, and its curl can be pasted', async (t) => {
  const facts = {
    version: '0.1.0',
    baseUrl: 'http://127.0.0.1:8025',
    key: 'sk_test_whole',
    consoleUrl: 'http://127.0.0.1:8025/console/login/once',
    submissionPort: 1_025,
    dataFolder: '.sandbox',
  }
  const text = bannerText(facts)
  t.equal(
    text,
    `Sternpost 0.1.0 sandbox · nothing leaves this machine · data in .sandbox (use --fresh to start over)

  Console   http://127.0.0.1:8025/console/login/once

  API       http://127.0.0.1:8025/v1          key  sk_test_whole   (also in .sandbox/key)
  SMTP      127.0.0.1:1025                    user apikey, password = the key

  Try it:
    curl -s http://127.0.0.1:8025/v1/email/send \\
      -H 'Authorization: Bearer sk_test_whole' -H 'Content-Type: application/json' \\
      -d '{"to":"clicked@simulator.sternpost.test","from":"you@sandbox.test","subject":"Hello","html":"<p>Hi, <a href=\\"https://example.com/\\">look</a></p>"}'

  Then watch:  curl -s 'http://127.0.0.1:8025/dev/hooks/inspector?wait=10s'      Stop: Ctrl-C
`,
  )
  const line = bannerLine(facts)
  t.equal(line.indexOf('\n'), line.length - 1, 'one line')
  const printed = JSON.parse(line) as Record<string, string>
  t.match(printed, {
    console: 'http://127.0.0.1:8025/console/login/once',
    base_url: 'http://127.0.0.1:8025/v1',
    key: 'sk_test_whole',
    data: '.sandbox',
    inbox: 'http://127.0.0.1:8025/dev/inbox',
    inspector: 'http://127.0.0.1:8025/dev/hooks/inspector',
  })
  // What a shell makes of both: the words that curl gets.
  const pasted = (/Try it:\n([\s\S]*?)\n\n/.exec(text)?.[1] ?? '').replace('curl ', 'printf "%s\\n" ')
  const { stdout } = await promisify(execFile)('sh', ['-c', pasted])
  const words = stdout.trimEnd().split('\n')
  t.equal(words[1], 'http://127.0.0.1:8025/v1/email/send')
  t.match(JSON.parse(words.at(-1) ?? ''), { to: 'clicked@simulator.sternpost.test', from: 'you@sandbox.test' })
  const fromLine = await promisify(execFile)('sh', ['-c', printed['curl']?.replace('curl ', 'printf "%s\\n" ') ?? ''])
  t.equal(fromLine.stdout, stdout)
})
