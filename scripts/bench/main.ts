/**
 * npm run bench: what a message costs, measured on the real server over real HTTP, SQLite and SMTP.
 *
 * accept      HTTP POST to the commit, 1 and 50 clients; nothing is delivered meanwhile
 * batch       the same with 1,000 recipients a request, five variables each
 * look-ups    by id and by recipient, beside few and many stored messages (`--stored`, 0 leaves them out)
 * clicks      tracked links that redirect
 * whole way   HTTP POST to Postfix's smtp-sink: durable, DKIM-signed (RSA-2048), delivered, event and webhook written
 *
 * The clock runs from the first request until the sink has every message. Counts are taken at the sink and in the
 * database that was used, and `synchronous` is read back from it. Installs nothing: it says what is missing.
 */
import { parseArgs } from 'node:util'
import { apiClient } from '../../test/support/api-client.ts'
import { freePort, startServe } from '../../test/support/serve-process.ts'
import type { ServeProcess } from '../../test/support/serve-process.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../../test/support/two-ips.ts'
import type { ZoneServer } from '../../test/support/zone.ts'
import { until } from '../../test/support/until.ts'
import { webhookReceiver } from '../../test/support/webhook-receiver.ts'
import { measureClicks } from './clicks.ts'
import type { ClickFigures } from './clicks.ts'
import { readBack } from './database-figures.ts'
import { percentile, runLoad } from './load.ts'
import type { LoadResult } from './load.ts'
import { timeLookups } from './lookups.ts'
import type { LookupRow } from './lookups.ts'
import { batchBody, messageBody } from './message.ts'
import { cpuSeconds, peakMemoryBytes } from './process-figures.ts'
import { hasSmtpSink, startSink } from './sink.ts'

const { values: flags } = parseArgs({
  options: {
    messages: { type: 'string', default: '3000' },
    clients: { type: 'string', default: '50' },
    stored: { type: 'string', default: '100000' },
    json: { type: 'boolean' },
  },
})
const MESSAGES = Number(flags.messages)
const CLIENTS = Number(flags.clients)
const LONE_MESSAGES = 200
const BATCHES = 40
const BATCH_RECIPIENTS = 1_000
const HTML_BYTES = 10 * 1_024
const SINK_DEADLINE = 120_000
/** PRAGMA synchronous as SQLite reads it back. */
const SYNCHRONOUS_FULL = 2

/** Limits that would otherwise be the result, and names and addresses of this run; the rest is at its default. */
const CHANGED_SETTINGS = {
  providers: {
    connections: 20, messages_per_connection: 1_000, rate: '100000/second', connection_rate: '100000/minute',
  },
  api: { requests: 0, recipients: 0 },
}

interface Row {
  what: string
  clients: number
  messages: number
  perSecond: number
  cpuMilliseconds: number
  p50Milliseconds: number
  p99Milliseconds: number
  messagesPerCommit: number
  peakMemoryMegabytes: number
}

if (!hasSmtpSink()) {
  process.stderr.write('bench: smtp-sink is missing. Fix: apt-get install postfix (its daemon need not run).\n')
  process.exit(69)
}
const rows = [
  await measureAccept(1, LONE_MESSAGES), await measureAccept(CLIENTS, MESSAGES), await measureBatch(),
  await measureWholeWay(),
]
const clicks = await withServer({ deliveryPort: await freePort(), readyWindow: 1 }, async (server, zone, key) => {
  zone.set('waiting.test', 'TIMEOUT')
  const message = { to: 'reader@waiting.test', from: `shop@${SENDING_DOMAIN}`, subject: 'Order' }
  return measureClicks(server, key, message)
})
const lookups = Number(flags.stored) > 0 ? await measureLookups() : []
if (flags.json === true) {
  process.stdout.write(`${JSON.stringify({ rows, clicks, lookups, changed_settings: CHANGED_SETTINGS })}\n`)
} else {
  printTable(rows)
  printOthers(clicks, lookups)
}

/** The recipient domain's DNS never answers and the window holds one message: nothing is delivered meanwhile. */
async function measureAccept(clients: number, messages: number): Promise<Row> {
  return withServer({ deliveryPort: await freePort(), readyWindow: 1 }, async (server, zone, key) => {
    zone.set('waiting.test', 'TIMEOUT')
    const row = await measure(server, `accept, HTTP to commit`, { clients, messages }, async () =>
      runLoad({ baseUrl: server.baseUrl, apiKey: key, clients, messages, body: body('waiting.test') }))
    await checkDatabase(server, { messages, delivered: 0 })
    return row
  })
}

async function measureBatch(): Promise<Row> {
  const messages = BATCHES * BATCH_RECIPIENTS
  return withServer({ deliveryPort: await freePort(), readyWindow: 1 }, async (server, zone, key) => {
    zone.set('waiting.test', 'TIMEOUT')
    const row = await measure(server, `batch of ${BATCH_RECIPIENTS}, HTTP to commit`, { clients: 1, messages }, () =>
      sendBatches(server.baseUrl, key, { first: 0, batches: BATCHES }))
    await checkDatabase(server, { messages, delivered: 0 })
    return row
  })
}

async function measureLookups(): Promise<LookupRow[]> {
  return withServer({ deliveryPort: await freePort(), readyWindow: 1 }, async (server, zone, key) => {
    zone.set('waiting.test', 'TIMEOUT')
    const found: LookupRow[] = []
    let stored = 0
    for (const messages of [BATCH_RECIPIENTS, Number(flags.stored)]) {
      const batches = Math.ceil((messages - stored) / BATCH_RECIPIENTS)
      await sendBatches(server.baseUrl, key, { first: stored / BATCH_RECIPIENTS, batches })
      stored += batches * BATCH_RECIPIENTS
      found.push(...(await timeLookups({ server, key, stored, recipientDomain: 'waiting.test' })))
    }
    return found
  })
}

function sendBatches(
  baseUrl: string,
  apiKey: string,
  { first, batches }: { first: number; batches: number },
): Promise<LoadResult> {
  const bodyOf = batchBody(`shop@${SENDING_DOMAIN}`, 'waiting.test', {
    htmlBytes: HTML_BYTES, recipients: BATCH_RECIPIENTS,
  })
  return runLoad({
    baseUrl, apiKey, path: '/v1/email/batch', clients: 1, messages: batches, body: (index) => bodyOf(first + index),
  })
}

async function measureWholeWay(): Promise<Row> {
  const port = await freePort()
  return withServer({ deliveryPort: port }, async (server, _zone, key) => {
    const receiver = await webhookReceiver()
    const sink = await startSink('127.0.0.1', port, MESSAGES)
    try {
      const endpoint = { url: `${receiver.url}/`, secret: 'bench-secret-of-16' }
      const registered = await apiClient(server.baseUrl, key).post('/webhooks', endpoint)
      if (registered.status !== 201) throw new Error(`no webhook endpoint: ${JSON.stringify(registered.body)}`)
      const size = { clients: CLIENTS, messages: MESSAGES }
      const row = await measure(server, 'whole way, HTTP to sink', size, async () => {
        const startedAt = performance.now()
        const { baseUrl } = server
        const { latencies } = await runLoad({ baseUrl, apiKey: key, ...size, body: body('dest.test') })
        await sink.received(SINK_DEADLINE)
        return { seconds: (performance.now() - startedAt) / 1_000, latencies }
      })
      await checkDatabase(server, { messages: MESSAGES, delivered: MESSAGES })
      return row
    } finally {
      await sink.stop()
      await receiver.close()
    }
  })
}

function body(recipientDomain: string): (index: number) => string {
  return messageBody(`shop@${SENDING_DOMAIN}`, recipientDomain, HTML_BYTES)
}

async function measure(
  server: ServeProcess,
  what: string,
  load: { clients: number; messages: number },
  work: () => Promise<{ seconds: number; latencies: number[] }>,
): Promise<Row> {
  const [cpuBefore, before] = [cpuSeconds(server.processId), await commits(server)]
  const { seconds, latencies } = await work()
  const [cpuAfter, after] = [cpuSeconds(server.processId), await commits(server)]
  return {
    what,
    ...load,
    perSecond: Math.round(load.messages / seconds),
    cpuMilliseconds: Math.round(((cpuAfter - cpuBefore) * 1_000_000) / load.messages) / 1_000,
    p50Milliseconds: round(percentile(latencies, 0.5)),
    p99Milliseconds: round(percentile(latencies, 0.99)),
    messagesPerCommit: round((after.messages - before.messages) / (after.commits - before.commits)),
    peakMemoryMegabytes: Math.round(peakMemoryBytes(server.processId) / 1_048_576),
  }
}

/** The histogram of accepted messages that shared a commit. */
async function commits(server: ServeProcess): Promise<{ messages: number; commits: number }> {
  const text = await (await fetch(server.metricsUrl)).text()
  const read = (suffix: string): number =>
    Number(new RegExp(`^posthorn_store_messages_per_commit_${suffix} (\\S+)$`, 'm').exec(text)?.[1] ?? 0)
  return { messages: read('sum'), commits: read('count') }
}

/** The work was done: rows in the database that was used, and the pragma of the connection that wrote them. */
async function checkDatabase(server: ServeProcess, expected: { messages: number; delivered: number }): Promise<void> {
  await until('the database shows the work', () => {
    const found = readBack(server.databaseFolder)
    return found.messages === expected.messages && found.delivered === expected.delivered &&
      found.deliveredEvents === expected.delivered && found.webhookDeliveries === expected.delivered
  }, SINK_DEADLINE)
  const opened = server.log().find((line) => line['msg'] === 'store opened')
  if (opened?.['synchronous'] !== SYNCHRONOUS_FULL) {
    throw new Error(`synchronous is not FULL: ${JSON.stringify(opened)}`)
  }
}

async function withServer<Result>(
  options: { deliveryPort: number; readyWindow?: number },
  work: (server: ServeProcess, zone: ZoneServer, key: string) => Promise<Result>,
): Promise<Result> {
  const zone = await startApplianceZone('127.0.0.1')
  const window = options.readyWindow === undefined ? {} : { ready_window: options.readyWindow }
  const httpPort = await freePort()
  const server = await startServe({
    httpPort,
    dnsServer: zone.server,
    deliveryPort: options.deliveryPort,
    pools: TWO_IPS,
    settings: {
      api: CHANGED_SETTINGS.api,
      delivery: window,
      listen: { http: [{ address: '127.0.0.1', port: httpPort, tls: false, serve: ['api', 'tracking'] }] },
    },
    files: { 'providers.d/50-bench.yaml': { default: CHANGED_SETTINGS.providers } },
  })
  try {
    await prepareSender(server, zone)
    return await work(server, zone, await server.createKey('send', 'webhooks', 'messages:read'))
  } finally {
    await server.remove()
    await zone.close()
  }
}

function printTable(rows: readonly Row[]): void {
  const heads = ['what', 'clients', 'messages', 'msg/s', 'CPU ms/msg', 'p50 ms', 'p99 ms', 'msg/commit', 'peak MB']
  const lines = rows.map((row) => Object.values(row).map(String))
  const widths = heads.map((head, index) => Math.max(head.length, ...lines.map((line) => (line[index] ?? '').length)))
  const print = (line: readonly string[]): void =>
    void process.stdout.write(`${line.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join('  ').trimEnd()}\n`)
  print(heads)
  for (const line of lines) print(line)
  process.stdout.write(`\n10 KB html with text; synchronous=FULL, read back; changed from the defaults: ` +
    `${JSON.stringify(CHANGED_SETTINGS)}\n`)
}

function printOthers(clicks: ClickFigures, lookups: readonly LookupRow[]): void {
  process.stdout.write(`clicks: ${clicks.perSecond}/s, ${clicks.cpuMilliseconds} ms CPU\n`)
  for (const { what, stored, cpuMilliseconds, p50Milliseconds } of lookups) {
    process.stdout.write(`${what}, ${stored} stored: ${cpuMilliseconds} ms CPU, p50 ${p50Milliseconds} ms\n`)
  }
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}
