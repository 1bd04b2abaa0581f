/**
 * The verbs that stay and watch, as a developer runs them beside a real appliance: `send --wait`, `listen`, `message
 * tail`. Each is a process of its own; Ctrl-C ends it with 0. And what an administrator changes while it runs.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { startKeepingSink } from '../support/keeping-sink.ts'
import { startRunningAppliance } from '../support/running-appliance.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'
import { sternpost, rows } from './command-server.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))

t.setTimeout(600_000)

const warnings: string[] = []
process.on('warning', ({ name }) => void warnings.push(name))
const zone = await startApplianceZone('127.0.0.1')
t.teardown(() => zone.close())
const sink = await startKeepingSink()
t.teardown(() => sink.close())
const appliance = await startRunningAppliance({ dnsServer: zone.server, deliveryPort: sink.port, pools: TWO_IPS })
t.teardown(() => appliance.stop())
await prepareSender({ baseUrl: appliance.baseUrl, createKey: async () => appliance.apiKey }, zone)

interface Started {
  /** Of standard output so far. */
  lines: string[]
  errors: () => string
  interrupt(): Promise<number | null>
}

interface Teardown {
  teardown(clean: () => unknown): void
}

function start(t: Teardown, words: string[], url = appliance.baseUrl): Started {
  const environment = { ...process.env, STERNPOST_URL: url, STERNPOST_API_KEY: appliance.apiKey }
  const child: ChildProcess = spawn('sh', [COMMAND, ...words], { env: environment, stdio: ['ignore', 'pipe', 'pipe'] })
  t.teardown(() => void child.kill('SIGKILL'))
  const lines: string[] = []
  let [rest, errors] = ['', '']
  child.stdout?.on('data', (text: Buffer) => {
    const pieces = (rest + text.toString()).split('\n')
    rest = pieces.pop() ?? ''
    lines.push(...pieces)
  })
  child.stderr?.on('data', (text: Buffer) => (errors += text.toString()))
  return {
    lines,
    errors: () => errors,
    async interrupt() {
      const ended = once(child, 'exit')
      child.kill('SIGINT')
      const [code] = await ended
      return typeof code === 'number' ? code : null
    },
  }
}

async function send(to: string): Promise<string> {
  const fields = { to, from: `orders@${SENDING_DOMAIN}`, subject: 'Order', text: 'Thank you' }
  return String((await appliance.api.post('/email/send', fields)).body['message_id'])
}

/** A command that ends by itself. */
const run = (...words: string[]) =>
  sternpost(words, { STERNPOST_URL: appliance.baseUrl, STERNPOST_API_KEY: appliance.apiKey })

const line = (started: Started, wanted: string): Promise<string> =>
  until(`a line with ${wanted}; so far: ${started.lines.join('|')} ${started.errors()}`, () =>
    started.lines.find((text) => text.includes(wanted)),
  )

t.test('send --wait tells the story of a message to its end', async (t) => {
  const from = ['--from', `orders@${SENDING_DOMAIN}`]
  const words = ['send', '--to', 'ada@dest.test', ...from, '--subject', 'Order 7', '--wait', '30s']
  const { code, stdout } = await appliance.command(...words)
  t.equal(code, 0)
  t.match(stdout, /^msg_\w+\n.* email\.accepted.*\n(.*\n)*.* email\.delivered {2}isp=dest\.test\ndelivered\n$/)
  t.match(String(sink.mails.at(-1)?.bytes), 'Subject: Order 7')
  const bounced = await run(...words.with(2, 'hard@simulator.sternpost.test'), '--json')
  t.match([bounced.code, JSON.parse(bounced.stdout)], [1, { state: 'bounced', events: [{ event: 'email.accepted' }] }])
  t.match(bounced.stderr, /^msg_\w+\n$/, 'the id, whatever happens')
})

t.test('listen posts each event in the exact wire format, signed with the secret it prints', async (t) => {
  const receiver = await webhookReceiver(200, 500, 'close', 200)
  t.teardown(() => receiver.close())
  const flags = ['--forward-to', receiver.url, '--events', 'email.delivered,email.bounced', '--header', 'X-Dev: yes']
  const listening = start(t, ['listen', ...flags, '--json'])
  const { secret }: { secret: string } = JSON.parse(await line(listening, 'whsec_'))
  t.match(secret, /^whsec_[\w-]{43}$/)
  const id = await send('listened@dest.test')
  t.match(JSON.parse(await line(listening, id)), {
    event: 'email.delivered',
    message_id: id,
    event_id: /^evt_/,
    status: 200,
    duration_ms: Number,
    error: null,
  })
  const [request] = receiver.requests
  const body = String(request?.body)
  t.match(
    body,
    new RegExp(
      `^{"event":"email\\.delivered","timestamp":\\d+,"data":{"message_id":"${id}",` +
        '"recipient":"listened@dest\\.test","isp":"dest\\.test"}}$',
    ),
  )
  const sign = (text: string): string => createHmac('sha256', secret).update(text).digest('hex')
  const time = String(request?.headers['x-service-timestamp'])
  t.match(request?.headers, {
    'content-type': 'application/json',
    'x-dev': 'yes',
    'x-service-signature': sign(body),
    'x-service-attempt': '1',
    'x-service-event-id': /^evt_\w{26}$/,
    'x-service-delivery-id': /^whd_\w{26}$/,
    'user-agent': /^Sternpost\//,
    'x-service-signature-v2': `t=${time},v1=${sign(`${time}.${body}`)}`,
  })
  const refused = await send('refused@dest.test')
  t.match(JSON.parse(await line(listening, refused)), { status: 500, error: null })
  const unanswered = await send('unanswered@dest.test')
  t.match(JSON.parse(await line(listening, unanswered)), { status: null, error: String })
  const bounced = await send('hard@simulator.sternpost.test')
  t.match(JSON.parse(await line(listening, bounced)), { event: 'email.bounced', status: 200 })
  t.equal(await listening.interrupt(), 0)
  t.equal(receiver.requests.length, 4, 'nothing is tried twice')
})

t.test('listen goes on behind the last event after its connection broke', async (t) => {
  const receiver = await webhookReceiver()
  t.teardown(() => receiver.close())
  const road = await startRoad(Number(new URL(appliance.baseUrl).port))
  t.teardown(() => road.close())
  const words = ['listen', '--forward-to', receiver.url, '--secret', 'a secret']
  const listening = start(t, words, `http://127.0.0.1:${road.port}/v1`)
  t.equal(await line(listening, 'Forwarding'), `Forwarding to ${receiver.url}, signed with a secret`)
  const first = await send('first@dest.test')
  t.match(await line(listening, first), new RegExp(`^email\\.delivered {2}${first} {2}200 {2}\\d+ ms$`))
  road.cut()
  await until('it is told', () => listening.errors().includes('The stream ended'))
  const missed = await send('missed@dest.test')
  await until('it is delivered', async () => {
    const { body } = await appliance.api.get(`/email/${missed}`)
    return JSON.stringify(body).includes('"state":"delivered"')
  })
  road.mend()
  await line(listening, missed)
  const last = await send('last@dest.test')
  await line(listening, last)
  const told = receiver.requests.map(({ body }) => String(/msg_\w+/.exec(String(body))))
  t.same(told, [first, missed, last], 'each once, in their order')
  t.equal(await listening.interrupt(), 0)
})

t.test('deliveries are listed and sent again, to whichever endpoint they belong', async (t) => {
  const [first, second] = [await webhookReceiver(), await webhookReceiver()]
  t.teardown(() => Promise.all([first.close(), second.close()]))
  const ids: string[] = []
  for (const { url } of [first, second]) {
    const { stdout } = await run('webhook', 'add', url, '--event', 'email.bounced', '--json')
    ids.push(String(JSON.parse(stdout).id))
  }
  const [endpoint = ''] = ids
  t.match(await run('webhook', 'test', endpoint), { code: 0, stdout: /^ok: answered 200, \d+ ms\n$/ })
  const message = await send('hard@simulator.sternpost.test')
  const list = (...words: string[]) => run('webhook', 'deliveries', '--message', message, ...words)
  const found = await until('both are delivered', async () => {
    const deliveries: { id: string; webhook_id: string }[] = JSON.parse(
      (await list('--status', 'succeeded', '--json')).stdout,
    )
    return deliveries.length === 2 && deliveries
  })
  t.same(found.map(({ webhook_id: id }) => id).toSorted(), ids.toSorted())
  const delivery = String(found.find(({ webhook_id: id }) => id === endpoint)?.id)
  const { stdout: row } = await list('--endpoint', endpoint)
  t.same(row.trimEnd().split('\t').slice(1), ['succeeded', 'email.bounced', '1', '', message, delivery])
  const before = first.requests.length
  const replayed = await run('webhook', 'replay', delivery)
  t.match(replayed, { code: 0, stdout: new RegExp(`^whd_\\w+ is the new delivery in place of ${delivery}\n$`) })
  await until('it came again', () => first.requests.length === before + 1)
  t.equal(String(first.requests.at(-1)?.body), String(first.requests.at(-2)?.body), 'the same bytes')
  const range = await run('webhook', 'replay', '--endpoint', endpoint, '--since', '1h', '--status', 'all')
  t.match(range, { code: 0, stdout: /^[1-9]\d* deliver(y|ies) queued\n$/ })
})

t.test('listen says at once what is wrong', async (t) => {
  const listen = (...words: string[]) => run('listen', ...words)
  t.match(await listen('--forward-to', 'localhost:3000'), { code: 64, stderr: /--forward-to: must be an http or/ })
  const headless = await listen('--forward-to', 'http://x', '--header', 'nothing')
  t.match(headless, { code: 64, stderr: /"nothing" is not name:value/ })
  t.match(await listen('--forward-to', 'http://x', '--events', 'email.lost'), { code: 1, stdout: '', stderr: /event/ })
  t.match(await listen('--forward-to', 'http://x', '--url', 'http://127.0.0.1:1', '--api-key', 'x'), { code: 69 })
})

t.test('message tail prints messages as they come and change', async (t) => {
  const tailing = start(t, ['message', 'tail', '--recipient', 'tailed@dest.test', '--json'])
  sink.defer(true)
  const id = await send('tailed@dest.test')
  await line(tailing, '"state":"deferred"')
  sink.defer(false)
  await run('message', 'retry', id)
  t.match(JSON.parse(await line(tailing, '"state":"delivered"')), { message_id: id, recipient: 'tailed@dest.test' })
  t.equal(await tailing.interrupt(), 0)
  const shown = await run('message', 'show', id, '--transcript')
  t.match(shown.stdout, /\n {2}attempts\n {4}1 .* deferred .*\n {7}451 4\.3\.0 come back later\n {4}2 .* delivered /)
  t.match(shown.stdout, /\n {2}dialogue of attempt 1\n/)
})

t.test('what waits is held and released, and the files are taken over, while the server runs', async (t) => {
  sink.defer(true)
  const id = await send('held@dest.test')
  const stateIs = (state: string): Promise<unknown> =>
    until(`it is ${state}`, async () => (await run('message', 'show', id)).stdout.startsWith(`${id}  ${state}`))
  await stateIs('deferred')
  t.match(rows((await run('queue', 'list', '--by', 'recipient-domain')).stdout), [['dest.test', '1', '0', '0', String]])
  const held = await run('queue', 'hold', '--recipient-domain', 'dest.test', '--yes')
  t.match(held, { code: 0, stdout: '1 message held\n' })
  t.match((await run('queue', 'explain', id)).stdout, /waits for +held/)
  const { stdout: advice, stderr: beside } = await appliance.command('doctor', 'queue')
  t.match(beside, /^To the sternpost commands above add, for the server that was asked: --config \S+$/m)
  t.match(
    advice,
    /1 messages are held\n.*\n +Fix: sternpost queue list --held; then: sternpost queue release --held, or: /,
  )
  t.notMatch(advice, /--all|--yes/, 'nothing but what is held, and its number first')
  sink.defer(false)
  t.match(await run('queue', 'release', '--yes'), { code: 0, stdout: '1 message released\n' })
  await stateIs('delivered')

  t.same(
    rows((await run('ip', 'list')).stdout).map(([ip, pool, state]) => [ip, pool, state]),
    [
      ['127.0.0.11', 'default', 'warmed'],
      ['127.0.0.12', 'default', 'warmed'],
    ],
  )
  const file = join(appliance.folder, 'pools.yaml')
  const before = readFileSync(file, 'utf8')
  const [first, second] = TWO_IPS.pools.default.ips
  const fresh = { address: '127.0.0.13', hostname: 'mta3.sternpost.test' }
  const ips = [{ ...first, weight: 5 }, second, fresh]
  writeFileSync(file, JSON.stringify({ ...TWO_IPS, pools: { default: { ips } } }))
  const reloaded = await appliance.command('reload')
  t.match(reloaded, { code: 0, stdout: /^reloaded, revision 2 \(\d+ ms\)\n/ })
  t.match(reloaded.stdout, '+ ip 127.0.0.13 in default (cold; start it with: sternpost ip warmup start 127.0.0.13)\n')
  t.match(reloaded.stdout, '~ ip 127.0.0.11 weight 100 -> 5\n')
  t.match(rows((await run('ip', 'list')).stdout)[2], ['127.0.0.13', 'default', 'cold'])
  writeFileSync(file, before.replace('127.0.0.12', '127.0.0.300'))
  const refused = await appliance.command('reload')
  t.match(refused, { code: 78, stdout: '', stderr: /pools\.yaml:\d+:\d+: .*"127\.0\.0\.300" is not an IPv4/ })
  t.match(rows((await run('pool', 'list')).stdout)[0], ['default (default)', '3', '2'], 'the old files stay in force')
  writeFileSync(file, before)
  t.match(await run('reload'), { code: 0, stdout: / {2}- ip 127\.0\.0\.13 of default\n/ })
  t.match(await run('provider', 'explain', 'dest.test'), { code: 0, stdout: /mx\.dest\.test {2}127\.0\.0\.1\n/ })
})

interface Road {
  port: number
  /** Ends what goes over it, and takes nothing more. */
  cut(): void
  mend(): void
  close(): void
}

/** Leads connections to another port of this machine, until it is cut. */
async function startRoad(to: number): Promise<Road> {
  const sockets = new Set<Socket>()
  let isCut = false
  const server = createServer((socket) => {
    if (isCut) return void socket.destroy()
    const onwards = connect(to, '127.0.0.1')
    for (const end of [socket, onwards]) {
      sockets.add(end)
      end.on('error', () => undefined).on('close', () => sockets.delete(end))
    }
    socket.pipe(onwards).pipe(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = (): void => {
    isCut = true
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: (server.address() as AddressInfo).port,
    cut,
    mend: () => void (isCut = false),
    close() {
      cut()
      server.close()
    },
  }
}

t.test('no stream of theirs was taken for a leak', async (t) =>
  t.notOk(warnings.includes('MaxListenersExceededWarning')),
)
