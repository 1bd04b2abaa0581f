/**
 * A real server with all its doors for fuzzed requests and dialogues: receivers on loopback that take what comes, a
 * ledger of what was answered, a watch on its threads; and the way back to order, in which everything accepted ends.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MAIL_CERTIFICATE, MAIL_KEY } from '../http/certificates.ts'
import { apiClient, type ApiClient } from '../support/api-client.ts'
import { createMailLedger, type MailLedger, type UnfinishedMessage } from '../support/mail-ledger.ts'
import { randomSource } from '../support/random-source.ts'
import { startReceivingServers } from '../support/receiving-servers.ts'
import { temporaryFolder } from '../support/sandbox-process.ts'
import { freePort, startServe, type ServeProcess } from '../support/serve-process.ts'
import { watchThreads } from '../support/thread-turns.ts'
import { applianceZone, prepareSender, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'
import { startZone } from '../support/zone.ts'
import type { Door } from './fuzzed-dialogues.ts'

export interface FuzzedServer {
  server: ServeProcess
  ledger: MailLedger
  api: ApiClient
  /** May do everything. */
  key: string
  /** Of the keys that this harness needs. */
  ownIds: readonly string[]
  httpPort: number
  ports: Record<Door, number>
  /** Envelope senders of mail that arrived lately. */
  returnPaths: readonly string[]
  /** Lifts all that was held, suspended or put off, until every message has ended. */
  settle(deadline: number): Promise<void>
  /** The longest turn of each thread so far. */
  busiest(): string[]
}

const KEPT_RETURN_PATHS = 50
const PAUSE_OF_LIFTING = 4_000
const FAST = { rate: '10000/second', connection_rate: '10000/second', failures: 1_000 }

export async function startFuzzedServer(t: { teardown(clean: () => unknown): void }): Promise<FuzzedServer> {
  const folder = temporaryFolder(t)
  const turns = watchThreads(t)
  const files = { cert_file: join(folder, 'mail.pem'), key_file: join(folder, 'mail.key') }
  writeFileSync(files.cert_file, MAIL_CERTIFICATE.trimStart())
  writeFileSync(files.key_file, MAIL_KEY.trimStart(), { mode: 0o600 })
  const returnPaths: string[] = []
  const ledger = withReturnPaths(createMailLedger(), returnPaths)
  const receivers = await startReceivingServers(ledger, randomSource(1))
  t.teardown(() => receivers.close())
  const zone = await startZone({
    ...applianceZone('127.0.2.1'),
    'mail.sternpost.test': { A: ['127.0.2.1'] },
    ...receivers.zone,
  })
  t.teardown(() => zone.close())
  const ports = {
    submission: await freePort(),
    starttls: await freePort(),
    implicit: await freePort(),
    reports: await freePort(),
  }
  const httpPort = await freePort()
  const address = '127.0.0.1'
  const server = await startServe({
    httpPort,
    dnsServer: zone.server,
    deliveryPort: receivers.port,
    pools: TWO_IPS,
    files: { 'providers.d/50-fast.yaml': { default: FAST } },
    settings: {
      api: { requests: 0, recipients: 0, counts_max: { webhooks: 4 } },
      delivery: { retry: ['1s'], greylist_retry: ['1s'], uncertain_retry: '1s' },
      health: { blocklists: [] },
      tls: { certificates: [files] },
      listen: {
        submission: [
          { address, port: ports.submission, tls: 'none' },
          { address, port: ports.starttls, tls: 'starttls' },
          { address, port: ports.implicit, tls: 'implicit' },
        ],
        inbound: [{ address, port: ports.reports }],
      },
    },
    environment: turns.environment,
  })
  t.teardown(() => server.remove())
  await prepareSender(server, zone)
  turns.begin()
  const key = await server.createKey('admin')
  const api = apiClient(server.baseUrl, key)
  const keys = (await api.get('/keys')).body['data'] as { id: string }[]
  return {
    server,
    ledger,
    api,
    key,
    ownIds: keys.map(({ id }) => id),
    httpPort,
    ports,
    returnPaths,
    settle: (deadline) => settle({ server, api, ledger, deadline, isKnown: (domain) => domain in receivers.zone }),
    busiest: turns.longest,
  }
}

function withReturnPaths(ledger: MailLedger, returnPaths: string[]): MailLedger {
  return {
    ...ledger,
    arrive(from, to) {
      ledger.arrive(from, to)
      returnPaths.push(from)
      if (returnPaths.length > KEPT_RETURN_PATHS) returnPaths.shift()
    },
  }
}

/** A name that is not in the DNS is asked for again after ten minutes; nobody waits for that here. */
async function settle({ server, api, ledger, deadline, isKnown }: Settling): Promise<void> {
  const open = (): UnfinishedMessage[] => ledger.unfinished(server.databaseFolder)
  const endsAt = performance.now() + deadline
  while (open().length > 0) {
    await liftAll(api)
    const unknown = new Set(open().flatMap(({ domain }) => (isKnown(domain) ? [] : [domain])))
    for (const domain of unknown) {
      await api.post('/admin/queue/actions', { action: 'drop', filter: { recipient_domain: domain } })
    }
    // What was lifted gets time to go.
    await until('every message has ended', () => open().length === 0, PAUSE_OF_LIFTING).catch(() => {})
    if (performance.now() > endsAt) throw new Error(`these do not end: ${JSON.stringify(open().slice(0, 20))}`)
  }
}

interface Settling extends Pick<FuzzedServer, 'server' | 'api' | 'ledger'> {
  deadline: number
  /** Whether the DNS knows the name. */
  isKnown: (domain: string) => boolean
}

async function liftAll(api: ApiClient): Promise<void> {
  for (const { address } of TWO_IPS.pools.default.ips) {
    await api.post(`/admin/ips/${address}/resume`, {})
    await api.post(`/ips/${address}/warmup/complete`, {})
  }
  await api.post('/admin/paths/resume', {})
  for (const action of ['release', 'retry']) await api.post('/admin/queue/actions', { action })
  const { body } = await api.get('/email?state=scheduled&limit=100')
  for (const { message_id: id } of body['data'] as { message_id: string }[]) await api.post(`/email/${id}/cancel`, {})
}
