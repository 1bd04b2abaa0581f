/**
 * The process ends while mail is under way, by a kill at each moment around the final dot and by SIGTERM, and is
 * started again: what may have been delivered waits and says so, everything else goes at once. store/README.md "The dot
 * mark and recovery".
 */
import t from 'tap'
import type { ApiClient } from '../support/api-client.ts'
import { MOMENTS, startHoldingMx, type Moment } from '../support/holding-mx.ts'
import { startManyDestinations } from '../support/many-destinations.ts'
import { integrityOf, lockWriting, queueRows, type QueueRow } from '../support/queue-rows.ts'
import { startServe } from '../support/serve-process.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'

const SECOND = 1_000
const UNCERTAIN_RETRY = 5 * SECOND
/** More than one piece of a body, so that its beginning leaves before the dot may. */
const LONG_BODY = 300_000
/** Short enough that its mark is asked for at once; it is not read, so its end and the dot never come in. */
const SHORT_BODY = 60_000
const DEADLINE = 240_000

t.setTimeout(600_000)

/** What a kill leaves behind, and what the start makes of it. */
const EXPECTED: Record<Moment, { isMarked: boolean; copies: number }> = {
  'before-mark': { isMarked: false, copies: 1 },
  'before-dot': { isMarked: true, copies: 1 },
  'before-answer': { isMarked: true, copies: 2 },
  'before-commit': { isMarked: true, copies: 2 },
}

t.test('kill -9 between 354 and mark, mark and dot, dot and 250, 250 and commit', async (t) => {
  const mx = await startHoldingMx()
  t.teardown(() => mx.close())
  const zone = await startApplianceZone('127.0.0.1')
  t.teardown(() => zone.close())
  // A path for each, so that none waits behind one that is held.
  for (const moment of MOMENTS) {
    zone.set(domainOf(moment), { MX: [`10 mx.${domainOf(moment)}`] })
    zone.set(`mx.${domainOf(moment)}`, { A: ['127.0.0.1'] })
  }
  const server = await startServe({
    dnsServer: zone.server,
    deliveryPort: mx.port,
    pools: TWO_IPS,
    settings: { delivery: { uncertain_retry: `${UNCERTAIN_RETRY / SECOND}s` } },
    // So that the answer to the dot, once read, is followed by QUIT.
    files: { 'providers.d/50-idle.yaml': { default: { idle: '50ms', connection_rate: '100/second' } } },
  })
  t.teardown(() => server.remove())
  const api = await prepareSender(server, zone)
  const rowOf = (moment: string): QueueRow | undefined =>
    queueRows(server.databaseFolder).find(({ recipient }) => recipient.startsWith(`${moment}@`))

  const ids: Record<Moment, string> = {
    'before-mark': await sendTo(api, 'before-mark', LONG_BODY),
    'before-dot': await sendTo(api, 'before-dot', SHORT_BODY),
    'before-answer': await sendTo(api, 'before-answer', LONG_BODY),
    'before-commit': await sendTo(api, 'before-commit', LONG_BODY),
  }
  await until(
    'each is held at its moment',
    () =>
      ['before-mark data', 'before-dot data', 'before-answer dot', 'before-commit dot'].every((one) =>
        mx.seen.has(one),
      ),
    DEADLINE,
  )
  await until('the mark of the one without a dot', () => rowOf('before-dot')?.isMarked, DEADLINE)
  const lock = lockWriting(server.databaseFolder)
  mx.letGo()
  await until(
    'a 354 and an answer that cannot be stored',
    () => mx.seen.has('before-mark body') && mx.seen.has('before-commit quit'),
    DEADLINE,
  )
  await server.kill()
  lock.release()
  t.notOk(mx.seen.has('before-mark dot'))
  t.notOk(mx.seen.has('before-dot dot'))
  for (const [moment, { isMarked }] of Object.entries(EXPECTED)) {
    const { state, isMarked: found } = rowOf(moment) ?? {}
    t.same({ state, isMarked: found }, { state: 'sending', isMarked }, `${moment}: as the kill left it`)
  }

  const restartedAt = Date.now()
  await server.start()
  const begun = server.log().findLast(({ msg }) => msg === 'epoch begun')
  t.match(begun, { recovered_messages: 1, uncertain_messages: 3 })
  await until(
    'everything is delivered',
    () => queueRows(server.databaseFolder).every(({ state }) => state === 'delivered'),
    DEADLINE,
  )
  for (const [moment, { isMarked, copies }] of Object.entries(EXPECTED)) {
    const arrived = mx.arrivals.filter((arrival) => arrival.moment === moment)
    t.equal(arrived.length, copies, `${moment}: arrived ${copies} times`)
    t.equal(new Set(arrived.map(({ text }) => text)).size, 1, `${moment}: the same bytes each time`)
    const wait = (arrived.at(-1)?.at ?? 0) - restartedAt
    if (isMarked) t.ok(wait >= UNCERTAIN_RETRY, `${moment}: waited, ${wait} ms`)
    const { body } = await api.get(`/email/${ids[moment as Moment]}`)
    t.match(body['data'], { state: 'delivered', uncertain: isMarked, attempts: { length: 1 } }, moment)
  }
  t.equal(await server.stop(), 0)
  t.equal(integrityOf(server.databaseFolder), 'ok')
})

t.test('SIGTERM while mail drains ends with 0, and nothing is lost or sent twice', async (t) => {
  const messages = 600
  const { sink, server, api, domains } = await startManyDestinations(t, { answerDelayMilliseconds: 200 })
  const recipients = Array.from({ length: messages }, (_, index) => ({
    to: `reader-${index}@${domains[index % domains.length]}`,
  }))
  const mail = { from: `shop@${SENDING_DOMAIN}`, subject: 'Order', text: 'On its way', recipients }
  t.equal((await api.post('/email/batch', mail)).status, 200)
  await until('some are in flight', () => sink.inFlight() > 0)
  t.equal(await server.stop(), 0)
  t.equal(sink.inFlight(), 0, 'what was under way was finished')
  t.ok(sink.arrivals.size < messages, `${sink.arrivals.size} of ${messages} had arrived`)
  await server.start()
  await until('every message has arrived', () => sink.arrivals.size === messages, DEADLINE)
  t.same(
    [...sink.arrivals.values()].filter((count) => count !== 1),
    [],
  )
  t.same([...sink.sources].sort(), ['127.0.0.11', '127.0.0.12'], 'both pool IPs sent, and no other address')
})

function domainOf(moment: Moment): string {
  return `${moment}.test`
}

async function sendTo(api: ApiClient, moment: Moment, bytes: number): Promise<string> {
  const content = Buffer.alloc(bytes, 'a line of text\n').toString('base64')
  return api.send({
    to: `${moment}@${domainOf(moment)}`,
    from: `shop@${SENDING_DOMAIN}`,
    subject: 'Order',
    text: 'On its way',
    attachments: [{ name: 'lines.txt', content }],
  })
}
