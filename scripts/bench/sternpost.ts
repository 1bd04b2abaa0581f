/**
 * The real `sternpost serve` as every measurement starts it: a database of its own, warmed IPs on loopback, DNS on
 * loopback, a verified sending domain with an RSA-2048 key, an API key, and a webhook endpoint that answers at once.
 * Throws when the database was not opened with `synchronous=FULL`, read back.
 */
import { freePort, startServe, type ServeProcess } from '../../test/support/serve-process.ts'
import { applianceZone, prepareSender, SENDING_DOMAIN } from '../../test/support/two-ips.ts'
import { until } from '../../test/support/until.ts'
import { startZone, type Zone, type ZoneServer } from '../../test/support/zone.ts'
import { CHANGED_SETTINGS } from './changed-settings.ts'
import { readBack, readBackPostgres, type DatabaseFigures } from './database-figures.ts'
import { startWebhookCounter, type WebhookCounter } from './webhook-counter.ts'

export interface SternpostOptions {
  deliveryPort: number
  /** Left out: 2. */
  ips?: number
  /** providers.yaml, left out: as in `changed-settings.ts`. */
  providers?: Record<string, unknown>
  /** Names beside those of the appliance and `dest.test`. */
  names?: Zone
  /** With a database in it; left out: an empty one. */
  dataFolder?: string
  /** Of PostgreSQL; left out: SQLite. */
  databaseUrl?: string
  /** For the process that is started, beside our own environment. */
  environment?: Record<string, string>
}

export interface Sternpost {
  readonly server: ServeProcess
  readonly zone: ZoneServer
  readonly key: string
  /** Resolves when the database shows so many rows; throws when it does not. */
  check(expected: Partial<DatabaseFigures>): Promise<DatabaseFigures>
  /**
   * Resolves when the webhooks of so many messages have been posted, each event once, and a sample is signed as it
   * should be: nothing goes on any more.
   */
  settled(webhooks: number): Promise<void>
  /** What Prometheus would read: the sum of all lines that begin with this name. */
  metric(name: string): Promise<number>
  stop(): Promise<void>
}

export const FROM = `shop@${SENDING_DOMAIN}`
/** Mail that has been recorded is at most this far behind the sink. */
const RECORD_DEADLINE = 120_000
/** PRAGMA synchronous as SQLite reads it back. */
const SYNCHRONOUS_FULL = 2
const WEBHOOK_SECRET = 'bench-secret-of-16'
const MOST_IPS_OF_A_NET = 200

export async function startSternpost(options: SternpostOptions): Promise<Sternpost> {
  const addresses = Array.from({ length: options.ips ?? 2 }, (_, index) => ipOf(index))
  const zone = await startZone({
    ...applianceZone('127.0.0.1'),
    'spf.mail.sternpost.test': { TXT: ['v=spf1 ip4:127.0.0.0/8 -all'] },
    ...options.names,
  })
  const receiver = await startWebhookCounter(WEBHOOK_SECRET)
  const server = await startWith(options, zone, addresses)
  try {
    const api = await prepareSender(server, zone)
    const registered = await api.post('/webhooks', { url: receiver.url, secret: WEBHOOK_SECRET })
    if (registered.status !== 201) throw new Error(`no webhook endpoint: ${JSON.stringify(registered.body)}`)
    const key = await server.createKey('send', 'webhooks', 'messages:read')
    const opened = server.log().findLast((line) => line['msg'] === 'store opened')
    const isDurable = opened?.['synchronous'] === SYNCHRONOUS_FULL || opened?.['synchronous_commit'] === 'on'
    if (!isDurable) throw new Error(`not FULL: ${JSON.stringify(opened)}`)
    const read = async (): Promise<DatabaseFigures> =>
      options.databaseUrl === undefined ? readBack(server.databaseFolder) : readBackPostgres(options.databaseUrl)
    return toSternpost({ server, zone, receiver, key, read })
  } catch (thrown) {
    await server.remove()
    throw thrown
  }
}

async function startWith(options: SternpostOptions, zone: ZoneServer, addresses: string[]): Promise<ServeProcess> {
  const httpPort = await freePort()
  return startServe({
    httpPort,
    dnsServer: zone.server,
    deliveryPort: options.deliveryPort,
    pools: {
      version: 1,
      default_pool: 'default',
      pools: {
        default: {
          ips: addresses.map((address, index) => ({ address, hostname: `mta${index}.sternpost.test`, warmed: true })),
        },
      },
    },
    settings: {
      ...CHANGED_SETTINGS['sternpost.yaml'],
      ...(options.databaseUrl === undefined ? {} : { storage: { engine: 'postgres', url: options.databaseUrl } }),
      listen: { http: [{ address: '127.0.0.1', port: httpPort, tls: false, serve: ['api', 'tracking', 'console'] }] },
    },
    files: { 'providers.d/50-bench.yaml': options.providers ?? CHANGED_SETTINGS['providers.yaml'] },
    ...(options.dataFolder === undefined ? {} : { dataFolder: options.dataFolder }),
    environment: options.environment ?? {},
  })
}

function toSternpost({
  server,
  zone,
  receiver,
  key,
  read,
}: Pick<Sternpost, 'server' | 'zone' | 'key'> & {
  receiver: WebhookCounter
  read: () => Promise<DatabaseFigures>
}): Sternpost {
  return {
    server,
    zone,
    key,
    async check(expected) {
      const isThere = (found: DatabaseFigures): boolean =>
        Object.entries(expected).every(([name, count]) => found[name as keyof DatabaseFigures] === count)
      await until(`the database shows ${JSON.stringify(expected)}`, async () => isThere(await read()), RECORD_DEADLINE)
      return read()
    },
    async settled(webhooks) {
      await until('the webhooks have been posted', () => receiver.events() >= webhooks, RECORD_DEADLINE)
      receiver.check()
    },
    async metric(name) {
      const text = await (await fetch(server.metricsUrl)).text()
      const lines = text.split('\n').filter((line) => line.startsWith(name))
      return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
    },
    async stop() {
      await server.remove()
      await receiver.close()
      await zone.close()
    },
  }
}

function ipOf(index: number): string {
  return `127.0.${1 + Math.floor(index / MOST_IPS_OF_A_NET)}.${11 + (index % MOST_IPS_OF_A_NET)}`
}
