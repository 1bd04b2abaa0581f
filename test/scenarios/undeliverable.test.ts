/**
 * Mail that can never be delivered, over three days of a clock moved by hand: tried as often as the schedule says, then
 * one bounce, one webhook, and nothing more.
 */
import t, { type Test } from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import type { MessageView } from '../../src/store/records/lookup-records.ts'
import { addVerifiedDomain } from '../support/api-client.ts'
import { startRunningAppliance, type RunningAppliance } from '../support/running-appliance.ts'
import { scriptedMx, type ScriptedMx } from '../support/scripted-mx.ts'
import { applianceZone, SENDING_DOMAIN, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'
import { webhookReceiver, type WebhookReceiver } from '../support/webhook-receiver.ts'
import { startZone, type ZoneServer } from '../support/zone.ts'

const LIFETIME = 72 * HOUR
/**
 * delivery/README.md "Retries": hours and minutes since the first attempt, and the last one a minute before the end.
 */
const SCHEDULE = [
  '0:00',
  '0:01',
  '0:06',
  '0:21',
  '0:51',
  '1:51',
  '3:51',
  '7:51',
  '11:51',
  '15:51',
  '21:51',
  '27:51',
  '33:51',
  '41:51',
  '49:51',
  '57:51',
  '65:51',
  '71:59',
].map((time) => Number(time.split(':')[0]) * HOUR + Number(time.split(':')[1]) * MINUTE)
/** Between a time that has come and the try on a slow machine. */
const LATE = 30 * SECOND
/** delivery/README.md "Path errors": a path waits at most so long. */
const LONGEST_PATH_WAIT = HOUR
const MOST_STEPS = 1_000

interface Case {
  /** Of the last answer. */
  description: RegExp
  /** How it was tried, by result. */
  result: 'deferred' | 'path-failed'
}

const CASES: Record<string, Case> = {
  'refusing.test': { description: /451 4\.3\.0 not now/, result: 'deferred' },
  'silent.test': { description: /nothing within 50 ms/, result: 'path-failed' },
  'broken.test': { description: /the DNS did not answer/, result: 'path-failed' },
}

t.setTimeout(600_000)
t.jobs = 2

// Apart, so that a host that answers has all the time it wants.
t.test('a host that refuses, and DNS that fails', (t) => liveAndEnd(t, ['refusing.test', 'broken.test'], {}))
t.test('a host that is silent', (t) => liveAndEnd(t, ['silent.test'], { banner: '50ms' }))

async function liveAndEnd(t: Test, domains: readonly string[], timeouts: Record<string, string>): Promise<void> {
  const world = await startWorld(t, timeouts)
  const { appliance, receiver } = world
  const ids = new Map<string, string>()
  for (const domain of domains) {
    const message = { to: `ada@${domain}`, from: `orders@${SENDING_DOMAIN}`, subject: 'Order', text: 'Thank you' }
    ids.set(domain, await appliance.api.send(message))
  }
  const views = await liveThrough(appliance, [...ids.values()])
  // By event: one that is being posted while the clock leaps is posted again, and receivers deduplicate.
  const told = (id: string): unknown[] => [
    ...new Set(
      receiver.requests
        .filter(({ body }) => {
          const { event, data } = JSON.parse(body.toString()) as { event: string; data: { message_id: string } }
          return data.message_id === id && event === 'email.bounced'
        })
        .map(({ headers }) => headers['x-service-event-id']),
    ),
  ]
  await until('the webhook is told, and has answered', async () => {
    const { body } = await appliance.api.get(`/webhooks/${world.endpoint}/deliveries`)
    const deliveries = body['data'] as { status: string }[]
    return deliveries.length === ids.size && deliveries.every(({ status }) => status === 'succeeded')
  })

  for (const domain of domains) {
    await t.test(domain, async (t) => {
      const expected = CASES[domain]
      const view = views.get(ids.get(domain) ?? '')
      if (view === undefined || expected === undefined) throw new Error(`no message to ${domain}`)
      const { description, result } = expected
      const { createdAt, attempts, bounce } = view
      t.match(view, { state: 'expired', bounce: { type: 'soft', code: '4.4.7', category: 'expired' } })
      t.match(bounce?.description, description)
      t.match(bounce?.description, /^not delivered within 72 h; last answer: /)
      const lived = (bounce?.at ?? 0) - createdAt
      t.ok(lived > LIFETIME - 2 * MINUTE && lived < LIFETIME + MINUTE, `lived ${lived / HOUR} h`)
      t.ok(
        attempts.slice(0, -1).every((attempt) => attempt.result === result),
        'tried in vain each time',
      )
      if (result === 'deferred') checkSchedule(t, view)
      else checkPathWaits(t, view)
    })
  }

  const before = world.signs()
  for (let step = 0; step < 6; step++) {
    appliance.clock.leap(12 * HOUR)
    // A round trip through store and dispatcher: what was due has happened.
    await appliance.parts.isAlive()
  }
  t.same(world.signs(), before, 'nothing is tried afterwards')
  for (const id of ids.values()) {
    const { body } = await appliance.api.get(`/email/${id}/events`)
    const events = (body['data'] as { event: string }[]).filter(({ event }) => event === 'email.bounced')
    t.equal(events.length, 1, 'one email.bounced')
    t.equal(told(id).length, 1, 'told of once')
  }
  const { body } = await appliance.api.get('/suppressions')
  t.same(body['data'], [], 'the addresses may be fine')
}

interface World {
  appliance: RunningAppliance
  receiver: WebhookReceiver
  /** Id of the webhook endpoint. */
  endpoint: string
  /** Everything that shows that something is tried. */
  signs(): Record<string, number>
}

async function startWorld(t: Test, timeouts: Record<string, string>): Promise<World> {
  const refusing = await scriptedMx({ address: '127.0.28.1', script: { rcpt: '451 4.3.0 not now' } })
  t.teardown(() => refusing.close())
  const silent = await scriptedMx({ address: '127.0.28.2', port: refusing.port, script: { banner: 'silence' } })
  t.teardown(() => silent.close())
  const zone = await startZone({
    ...applianceZone('127.0.0.1'),
    'refusing.test': { MX: ['10 mx.refusing.test'] },
    'mx.refusing.test': { A: [refusing.address] },
    'silent.test': { MX: ['10 mx.silent.test'] },
    'mx.silent.test': { A: [silent.address] },
    'broken.test': 'SERVFAIL',
  })
  t.teardown(() => zone.close())
  const receiver = await webhookReceiver()
  t.teardown(() => receiver.close())
  const appliance = await startRunningAppliance({
    dnsServer: zone.server,
    deliveryPort: refusing.port,
    pools: TWO_IPS,
    settings: { delivery: { threads: 1, retry_jitter: 0, timeouts } },
  })
  t.teardown(() => appliance.stop())
  await addVerifiedDomain(appliance.api, SENDING_DOMAIN, (records) => {
    for (const { name, type, value } of records.filter(({ via }) => via === undefined)) {
      zone.set(name, type === 'CNAME' ? { CNAME: value } : { TXT: [value] })
    }
  })
  const added = await appliance.api.post('/webhooks', { url: receiver.url, secret: 'a secret of some length' })
  const endpoint = String((added.body['data'] as { id: string }).id)
  return { appliance, receiver, endpoint, signs: () => signsOf([refusing, silent], zone, receiver) }
}

function signsOf(hosts: readonly ScriptedMx[], zone: ZoneServer, receiver: WebhookReceiver): Record<string, number> {
  const isOfCase = (query: string): boolean => Object.keys(CASES).some((domain) => query.endsWith(domain))
  return {
    connections: hosts.reduce((sum, { connections }) => sum + connections.length, 0),
    lookups: zone.queries.filter(isOfCase).length,
    webhooks: receiver.requests.length,
  }
}

/** Moves the clock from one try to the next until all have ended. */
async function liveThrough(appliance: RunningAppliance, ids: readonly string[]): Promise<Map<string, MessageView>> {
  const {
    clock,
    parts: { store },
  } = appliance
  const lookUp = async (id: string): Promise<MessageView> => {
    const view = await store.lookupMessage(id, clock.now())
    if (view === null) throw new Error(`no message ${id}`)
    return view
  }
  for (let step = 0; step < MOST_STEPS; step++) {
    const views = await until('what is due was tried', async () => {
      const views = await Promise.all(ids.map(lookUp))
      return views.every((view) => hasEnded(view) || (view.nextAttemptAt ?? 0) > clock.now()) && views
    })
    const waiting = views.filter((view) => !hasEnded(view))
    if (waiting.length === 0) return new Map(views.map((view) => [view.id, view]))
    const next = Math.min(...waiting.map(({ nextAttemptAt }) => nextAttemptAt ?? Infinity))
    clock.leap(Math.max(1, next - clock.now()))
  }
  throw new Error(`still waiting after ${MOST_STEPS} tries`)
}

function hasEnded({ state }: MessageView): boolean {
  return state === 'expired' || state === 'bounced'
}

function checkSchedule(t: Test, { attempts }: MessageView): void {
  t.equal(attempts.length, SCHEDULE.length, 'so many attempts')
  const first = attempts[0]?.at ?? 0
  for (const [index, { at }] of attempts.entries()) {
    const lateness = at - first - (SCHEDULE[index] ?? 0)
    // Waits count from the try before it, and the last one from the end.
    t.ok(lateness > -LATE && lateness < LATE, `attempt ${index + 1}: ${lateness} ms after its time`)
  }
}

function checkPathWaits(t: Test, { attempts }: MessageView): void {
  const gaps = attempts.slice(1).map(({ at }, index) => at - (attempts[index]?.at ?? 0))
  t.ok(Math.max(...gaps) < LONGEST_PATH_WAIT + LATE, 'no wait is longer than an hour')
  t.ok(attempts.length > LIFETIME / LONGEST_PATH_WAIT, `${attempts.length} tries`)
  t.ok(attempts.length < LIFETIME / LONGEST_PATH_WAIT + DAY / HOUR, 'and not many more')
}
