/**
 * What the stories of warmup share: recipient domains at five mailbox providers, one sink behind all of them that notes
 * from where each mail came, a verified sending domain, and the whole appliance on a clock that the test moves.
 */
import type { Test } from 'tap'
import { DAY, MINUTE, SECOND } from '../../src/base/clock.ts'
import { addVerifiedDomain, type ApiClient } from './api-client.ts'
import { startNotingSink, type NotingSink } from './noting-sink.ts'
import { passTime } from './pass-time.ts'
import { startRunningAppliance, type RunningAppliance } from './running-appliance.ts'
import { applianceZone, SENDING_DOMAIN } from './two-ips.ts'
import { startZone, type ZoneServer } from './zone.ts'

/** Recipient domains, with the part of a day's cap that their provider gets at most. */
export const DESTINATIONS = [
  { domain: 'google-user.test', mx: 'mx.google.com', isp: 'gmail', share: 0.5 },
  { domain: 'outlook-user.test', mx: 'mx.mail.protection.outlook.com', isp: 'outlook', share: 0.35 },
  { domain: 'company.test', mx: 'mx.company.test', isp: 'company.test', share: 0.35 },
  { domain: 'school.test', mx: 'mx.school.test', isp: 'school.test', share: 0.35 },
  { domain: 'town.test', mx: 'mx.town.test', isp: 'town.test', share: 0.35 },
] as const

/** The sink speaks no TLS; and the pace is that of warmup alone. */
export const PLAIN_PROVIDERS = {
  'providers.d/50-test.yaml': {
    default: { rate: '100000/second', connection_rate: '100000/second' },
    providers: { google: { tls: 'opportunistic' } },
  },
}
/** As many requests and recipients as a test likes. */
export const UNLIMITED = { requests: 0, recipients: 0 }
const MOST_RECIPIENTS = 1_000

export function startProviderZone(): Promise<ZoneServer> {
  return startZone({
    ...applianceZone('127.0.0.1'),
    ...Object.fromEntries(
      DESTINATIONS.flatMap(({ domain, mx }) => [
        [domain, { MX: [`10 ${mx}`] }],
        [mx, { A: ['127.0.0.1'] }],
      ]),
    ),
  })
}

export async function verifySender(api: ApiClient, zone: ZoneServer): Promise<void> {
  await addVerifiedDomain(api, SENDING_DOMAIN, (records) => {
    for (const record of records.filter(({ via }) => via === undefined)) {
      zone.set(record.name, record.type === 'CNAME' ? { CNAME: record.value } : { TXT: [record.value] })
    }
  })
}

/** One mail to each; ids in their order. Throws when one is not accepted. */
export async function sendBatch(api: ApiClient, to: readonly string[], more: object = {}): Promise<string[]> {
  const ids: string[] = []
  for (let from = 0; from < to.length; from += MOST_RECIPIENTS) {
    const recipients = to.slice(from, from + MOST_RECIPIENTS).map((address) => ({ to: address }))
    const { status, body } = await api.post('/email/batch', {
      from: `news@${SENDING_DOMAIN}`,
      subject: 'News',
      text: 'All the news',
      recipients,
      ...more,
    })
    if (status !== 200) throw new Error(`not accepted: ${status} ${JSON.stringify(body)}`)
    ids.push(...(body['results'] as { message_id: string }[]).map((result) => result.message_id))
  }
  return ids
}

export interface WarmingScene {
  server: RunningAppliance
  api: ApiClient
  sink: NotingSink
  /** So much time passes, in steps; nothing is under way afterwards. */
  pass(milliseconds: number, step?: number): Promise<void>
  /** To the next UTC midnight, and a second. */
  passDay(step?: number): Promise<void>
  warmupOf(ip: string): Promise<ShownWarmup>
}

export interface ShownWarmup {
  status: string
  stage: number
  daily_limit: number
  sent_today: number
  hold_reason: string | null
  paused_until: number | null
}

/** A UTC day has just begun. */
export async function startWarmingScene(t: Test, pools: object, delivery: object = {}): Promise<WarmingScene> {
  const sink = await startNotingSink(() => server.clock.now())
  const zone = await startProviderZone()
  const server: RunningAppliance = await startRunningAppliance({
    dnsServer: zone.server,
    deliveryPort: sink.port,
    pools: { version: 1, default_pool: 'default', pools },
    settings: { api: UNLIMITED, delivery: { threads: 1, ...delivery } },
    files: PLAIN_PROVIDERS,
  })
  t.teardown(async () => {
    await server.stop()
    await sink.close()
    await zone.close()
  })
  const { api } = server
  const untilMidnight = (): number => DAY - (server.clock.now() % DAY)
  await verifySender(api, zone)
  await passTime(server, untilMidnight() + SECOND)
  return {
    server,
    api,
    sink,
    pass: (milliseconds, step) => passTime(server, milliseconds, step),
    async passDay(step = 15 * MINUTE) {
      await passTime(server, untilMidnight() + SECOND, step)
    },
    async warmupOf(ip) {
      const { body } = await api.get(`/ips/${ip}/warmup`)
      return (body['data'] as { warmup: ShownWarmup }).warmup
    },
  }
}
