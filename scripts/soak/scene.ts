/**
 * What the soak runs: the real server with HTTP, submission and the door for reports, DNS, receivers of every temper, a
 * webhook endpoint that comes and goes, and the ledger in which all of it is written down.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import { rmSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { identifierFromBytes } from '../../src/base/identifier.ts'
import { TIMELINE_KINDS } from '../../src/mail/event.ts'
import type { ApiClient } from '../../test/support/api-client.ts'
import { createMailLedger, type MailLedger } from '../../test/support/mail-ledger.ts'
import type { RandomSource } from '../../test/support/random-source.ts'
import { startReceivingServers } from '../../test/support/receiving-servers.ts'
import { freePort, startServe, type ServeProcess } from '../../test/support/serve-process.ts'
import { applianceZone, prepareSender, TWO_IPS } from '../../test/support/two-ips.ts'
import { startZone } from '../../test/support/zone.ts'

export interface SoakScene {
  server: ServeProcess
  ledger: MailLedger
  api: ApiClient
  /** May send. */
  key: string
  httpPort: number
  submissionPort: number
  reportsPort: number
  endpoint: Endpoint
  /** Written: all threads of the server collect their garbage. */
  collectFile: string
  close(): Promise<void>
}

export interface Endpoint {
  url: string
  /** Ids of the events that were answered with 200. */
  events: ReadonlySet<string>
  posts(): number
  /** How posts are answered from now on. */
  turn(mood: 'well' | 'refusing' | 'gone'): void
}

const COLLECT_GARBAGE = new URL('./collect-garbage.ts', import.meta.url)
export const RATE_FILE = 'providers.d/50-fast.yaml'

export function providersAt(rate: number): unknown {
  return { default: { rate: `${rate}/second`, connection_rate: '10000/second' } }
}

export async function startScene(random: RandomSource): Promise<SoakScene> {
  const ledger = createMailLedger()
  const receivers = await startReceivingServers(ledger, random)
  const zone = await startZone({ ...applianceZone('127.0.2.1'), ...receivers.zone })
  const { endpoint, close: closeEndpoint } = await startEndpoint()
  const [httpPort, submissionPort, reportsPort] = [await freePort(), await freePort(), await freePort()]
  const address = '127.0.0.1'
  const collectFile = join(tmpdir(), `sternpost-soak-${process.pid}`)
  const server = await startServe({
    httpPort,
    dnsServer: zone.server,
    deliveryPort: receivers.port,
    pools: TWO_IPS,
    files: { [RATE_FILE]: providersAt(5_000) },
    environment: { NODE_OPTIONS: `--import=${COLLECT_GARBAGE.href}`, COLLECT_FILE: collectFile },
    settings: {
      api: { requests: 0, recipients: 0 },
      // What is put off ends within minutes, so that the soak can wait for all of it.
      delivery: {
        retry: ['2s', '5s', '15s', '30s'],
        greylist_retry: ['3s'],
        uncertain_retry: '2s',
        streams: { transactional: { lifetime: '5m' }, bulk: { lifetime: '5m' } },
        timeouts: { banner: '5s', ehlo: '5s', mail: '5s', rcpt: '5s', data: '5s', final_dot: '10s' },
      },
      health: { blocklists: [] },
      listen: {
        submission: [{ address, port: submissionPort, tls: 'none' }],
        inbound: [{ address, port: reportsPort }],
      },
    },
  })
  const api = await prepareSender(server, zone)
  const { status } = await api.post('/webhooks', { url: endpoint.url, events: ['*'], secret: 'soak-secret-of-16' })
  if (status !== 201) throw new Error(`no webhook endpoint: ${status}`)
  const key = await server.createKey('send')
  return {
    server,
    ledger,
    api,
    key,
    httpPort,
    submissionPort,
    reportsPort,
    endpoint,
    collectFile,
    async close() {
      for (const file of [collectFile, `${collectFile}.left`]) rmSync(file, { force: true })
      await server.remove()
      await Promise.all([receivers.close(), zone.close(), closeEndpoint()])
    },
  }
}

async function startEndpoint(): Promise<{ endpoint: Endpoint; close: () => Promise<void> }> {
  const events = new Set<string>()
  let posts = 0
  let mood: Parameters<Endpoint['turn']>[0] = 'well'
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      posts += 1
      if (mood === 'gone') return void request.socket.destroy()
      if (mood === 'well') events.add(String(request.headers['x-service-event-id']))
      response.writeHead(mood === 'well' ? 200 : 500).end()
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    endpoint: {
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`,
      events,
      posts: () => posts,
      turn: (value) => void (mood = value),
    },
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

const PENDING = `select count(*) from webhook_deliveries where state = 'pending'`
const TIMELINE = TIMELINE_KINDS.map((kind) => `'${kind}'`).join(', ')
/** What is still to be posted again, after an endpoint that was away, is not lost. */
const TOLD = `
  select id from events
  where message_seq is not null and kind not in (${TIMELINE})
    and event_seq not in (select event_seq from webhook_deliveries where state = 'pending')`

/** Posts that are still to come, dead letters left out. */
export function pendingPosts({ server }: SoakScene): number {
  return withDatabase(server, (database) => Number(database.prepare(PENDING).pluck().get()))
}

/** Events of messages that the endpoint was never told. */
export function untoldEvents({ server, endpoint }: SoakScene): string[] {
  return withDatabase(server, (database) => {
    const ids = database.prepare<[], Buffer>(TOLD).pluck().all()
    return ids.map((id) => identifierFromBytes('evt', id)).filter((id) => !endpoint.events.has(id))
  })
}

function withDatabase<Result>(server: ServeProcess, look: (database: Sqlite.Database) => Result): Result {
  const database = new Sqlite(join(server.databaseFolder, 'sternpost.db'), { readonly: true, timeout: 60_000 })
  try {
    return look(database)
  } finally {
    database.close()
  }
}
