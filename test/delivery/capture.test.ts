/**
 * Mail that never leaves the host: its way, its retries, and what it does not count for.
 */
import t, { type Test } from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import { simulatedWait } from '../../src/delivery/settle/retry-schedule.ts'
import { manualClock } from '../support/manual-clock.ts'
import { scriptedMx, type ScriptedMx, type ScriptedMxOptions } from '../support/scripted-mx.ts'
import { startEngine } from './start-engine.ts'
import { LIVE_SUPPRESSIONS } from '../store/store-samples.ts'

const START = Date.UTC(2026, 10, 21, 12)
const SIMULATOR = 'simulator.sternpost.test'

/** The capture server's place, and a real host that must see nothing. */
async function servers(t: Test, options: ScriptedMxOptions = {}): Promise<{ capture: ScriptedMx; real: ScriptedMx }> {
  const capture = await scriptedMx({ address: '127.0.0.1', ...options })
  const real = await scriptedMx({ address: '127.0.0.2' })
  t.teardown(() => Promise.all([capture.close(), real.close()]))
  return { capture, real }
}

t.test('captured mail goes to the capture server from loopback, signed, and counts nowhere', async (t) => {
  const { capture, real } = await servers(t)
  const engine = await startEngine(t, { port: real.port, capturePort: capture.port })
  const [simulated] = await engine.accept(`delivered+label@${SIMULATOR}`, { isCaptured: true })
  const [ofTestKey] = await engine.accept('anna@dest.test', { isCaptured: true })
  const [live] = await engine.accept('anna@dest.test')
  const expected = { host: 'capture', ip: null, localAddress: '127.0.0.1', remoteAddress: '127.0.0.1' }
  t.match(await engine.untilState(simulated, 'delivered'), { isp: 'simulator', ip: null, attempts: [expected] })
  t.match(await engine.untilState(ofTestKey, 'delivered'), { isp: 'dest.test', attempts: [expected] })
  t.match(await engine.untilState(live, 'delivered'), { ip: '127.0.0.11' })
  t.strictSame(capture.messages.map(({ to }) => to).toSorted(), ['anna@dest.test', `delivered+label@${SIMULATOR}`])
  t.equal(capture.connections[0]?.ehloName, 'sternpost.test')
  t.match(capture.messages[0]?.bytes.toString(), /^DKIM-Signature: /)
  t.match(capture.messages[0]?.from, /^b-[a-z2-7]{48}@bounces\.acme\.test$/)
  t.equal(real.messages.length, 1)
  t.notOk(
    engine.zone.queries.some((query) => query.includes(SIMULATOR)),
    'nobody asked the DNS for it',
  )
  const metrics = await engine.metrics.registry.metrics()
  t.strictSame(metrics.match(/^sternpost_deliveries_total\{.*$/gm), [
    'sternpost_deliveries_total{result="delivered",pool="default",ip="127.0.0.11",provider="other"} 1',
  ])
  t.strictSame(
    (await engine.events(simulated)).map(({ data }) => data['isp']),
    ['simulator'],
  )
})

t.test('captured mail may come from a domain without a record and a key, other mail may not', async (t) => {
  const { capture, real } = await servers(t)
  const engine = await startEngine(t, { port: real.port, capturePort: capture.port })
  const domain = 'sandbox.test'
  const content = { from: { name: null, address: `you@${domain}` } }
  const [live] = await engine.accept('anna@dest.test', { domain, content })
  const [ofTestKey] = await engine.accept('anna@dest.test', { domain, content, isCaptured: true })
  await engine.untilState(ofTestKey, 'delivered')
  t.equal(capture.messages.length, 1)
  t.notMatch(capture.messages[0]?.bytes.toString(), /^DKIM-Signature: /m)
  t.match(capture.messages[0]?.from, /^b-[a-z2-7]{48}@rp\.sternpost\.test$/, 'as the server hears it')
  const [later] = await engine.accept('anna@dest.test')
  await engine.untilState(later, 'delivered')
  t.match(await engine.message(live), { state: 'queued', attempts: [] })
  t.equal(real.messages.length, 1)
})

t.test('captured mail needs no IP that sends', async (t) => {
  const { capture, real } = await servers(t)
  const ips = [{ address: '127.0.0.11', hostname: 'mta1.sternpost.test', enabled: false }]
  const engine = await startEngine(t, { port: real.port, capturePort: capture.port, ips })
  const [id] = await engine.accept('anna@dest.test', { isCaptured: true })
  await engine.untilState(id, 'delivered')
})

t.test('a simulated recipient is tried again within seconds, wherever its mail goes', async (t) => {
  for (const isCaptured of [true, false]) {
    const script = { rcpt: ['451 4.7.1 Greylisted, please try again in 300 seconds', '451 4.3.0 later', '250 ok'] }
    const { capture, real } = await servers(t, { script })
    const zone = { [SIMULATOR]: { MX: ['10 mx.sim.test'] }, 'mx.sim.test': { A: ['127.0.0.1'] } }
    const clock = manualClock(START)
    const port = isCaptured ? real.port : capture.port
    const engine = await startEngine(t, { port, capturePort: capture.port, clock, zone })
    const [id = ''] = await engine.accept(`deferred@${SIMULATOR}`, { isCaptured })
    for (const failure of [1, 2]) {
      const view = await engine.until('it was tried', async () => {
        const found = await engine.message(id)
        return found.attempts.length === failure && found.state === 'deferred' && found
      })
      const wait = simulatedWait(failure, id)
      t.equal(view.nextAttemptAt, clock.now() + wait)
      t.ok(wait >= SECOND && wait <= 5 * SECOND)
      await clock.advance(wait)
    }
    await engine.untilState(id, 'delivered')
    const kinds = (await engine.events(id)).map(({ kind }) => kind)
    t.strictSame(kinds, ['email.deferred', 'email.deferred', 'email.delivered'])
  }
})

t.test('every simulated end comes, and nobody is suppressed for it', async (t) => {
  const replies: Record<string, string> = {
    hard: '550 5.1.1 The email account that you tried to reach does not exist',
    soft: '452 4.2.2 over quota',
    block: '554 5.7.1 Service unavailable; client host blocked using blocklist.sternpost.test',
  }
  const { capture, real } = await servers(t, {
    script: { rcpt: (line) => replies[/<(\w+)@/.exec(line)?.[1] ?? ''] ?? '250 ok' },
  })
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: real.port, capturePort: capture.port, clock })
  const lifetime = 10 * SECOND
  const ends = { hard: 'hard', block: 'block', soft: 'soft' }
  for (const [name, type] of Object.entries(ends)) {
    const [id] = await engine.accept(`${name}@${SIMULATOR}`, { isCaptured: true, lifetime })
    const view = await engine.until(`${name} ended`, async () => {
      // As the server does every 5 s: the threads' clock runs on, and a try may come some milliseconds too late.
      await engine.store.expireDue(clock.now(), 1)
      const found = await engine.message(id)
      if (found.nextAttemptAt !== null && found.nextAttemptAt > clock.now()) {
        await clock.advance(found.nextAttemptAt - clock.now())
      }
      return found.bounce !== null && found
    })
    t.equal(view.bounce?.type, type, name)
    t.equal(view.state, name === 'soft' ? 'expired' : 'bounced')
    t.match((await engine.events(id)).at(-1), { kind: 'email.bounced', data: { bounce_type: type } })
  }
  t.strictSame((await engine.store.listSuppressions(LIVE_SUPPRESSIONS)).suppressions, [])
})

t.test('a capture server that is gone is tried again, and ends nothing', async (t) => {
  const { capture, real } = await servers(t)
  const clock = manualClock(START)
  const engine = await startEngine(t, { port: real.port, capturePort: capture.port, clock })
  await capture.close()
  const [id] = await engine.accept('anna@dest.test', { isCaptured: true })
  const waiting = { nextAttemptAt: START + MINUTE, attempts: [{ result: 'path-failed' }] }
  t.match(await engine.untilState(id, 'deferred'), waiting)
  const again = await scriptedMx({ address: '127.0.0.1', port: capture.port })
  t.teardown(() => again.close())
  await clock.advance(MINUTE)
  await engine.untilState(id, 'delivered')
})
