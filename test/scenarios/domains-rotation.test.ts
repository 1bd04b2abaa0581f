/**
 * A DKIM key is rotated while mail goes out: each message is verified by the receiver when it arrives, against what the
 * DNS says at that moment, while the owner publishes the new key and later takes the old one away.
 */
import t from 'tap'
import { recordOf, startDomainWorld, toPublish, type DomainBody, type DomainWorld } from '../support/domain-world.ts'
import { judgeWithMailauth, type SignatureVerdict } from '../support/judges.ts'
import { missingPrograms } from '../support/programs.ts'
import { until } from '../support/until.ts'

const skip = missingPrograms({ unbound: ['unbound'] })

/** At least; the times at which they arrived are parts of it. */
const MESSAGES = process.env['TEST_SCALE'] === 'full' ? 2_000 : 400
const SENDERS = 16
/** Messages that are under way at once. */
const MOST_UNDER_WAY = 50
const DOMAIN = 'acme.test'
const SECOND = 1_000
const DAY = 86_400 * SECOND
const ARRIVAL_DEADLINE = 240 * SECOND

t.setTimeout(600_000)

t.test('messages while the key rotates: every one verifies with the DNS of its moment', { skip }, async (t) => {
  const arrived: SignatureVerdict[][] = []
  const port: { ofDns: number } = { ofDns: 0 }
  const world = await startDomainWorld(t, {
    settings: { domains: { dkim: { ed25519: true } } },
    onMail: async ({ bytes }) => void arrived.push(await judgeWithMailauth(bytes, port.ofDns)),
  })
  port.ofDns = world.unbound.port
  const { api, clock } = world.appliance
  const before = await world.addVerified(DOMAIN)
  const first = selectors(before)
  const load = startLoad(world, () => arrived.length)
  const arrivals = (count: number): Promise<unknown> =>
    until(`${count} mails arrived`, () => arrived.length >= count, ARRIVAL_DEADLINE)

  await arrivals(MESSAGES * 0.1)
  const rotated = await api.post(`/domains/${DOMAIN}/dkim/rotate`, {})
  t.equal(rotated.status, 200)
  const next = (rotated.body['data'] as DomainBody).records.filter(({ role }) => role === 'next')
  t.equal(next.length, 2, 'a next key of each kind')
  t.ok(next.every(({ required }) => !required))
  t.match(await api.post(`/domains/${DOMAIN}/dkim/rotate`, {}), { status: 409, body: { error: { code: 'conflict' } } })
  t.same(roles(await world.verify(DOMAIN)), ['active', 'active', 'next', 'next'], 'not published, not used')

  await arrivals(MESSAGES * 0.2)
  world.setZone(DOMAIN, [...toPublish(before), ...next.map(({ name, type, value }) => ({ name, type, value }))])
  await world.publish()
  t.same(roles(await world.verify(DOMAIN)), ['active', 'active', 'next', 'next'], 'seen once is not enough')
  await arrivals(MESSAGES * 0.3)
  await until('the keys have switched', async () => {
    const seen = await world.nextCheck(DOMAIN)
    return roles(seen).join() === 'active,active,retiring,retiring'
  })
  const usesNew = (verdicts: SignatureVerdict[]): boolean => verdicts.every(({ selector }) => !first.includes(selector))
  await until('the new keys sign', () => arrived.some(usesNew), ARRIVAL_DEADLINE)
  await arrivals(MESSAGES * 0.7)
  await load.pause()
  const retiring = await world.find(DOMAIN)
  t.match(retiring, { status: 'verified', can_send: true })

  clock.leap(6 * DAY)
  t.same(roles(await world.nextCheck(DOMAIN)), ['active', 'active', 'retiring', 'retiring'], 'both stand')
  clock.leap(DAY)
  const after = await until('the old keys are over', async () => {
    const seen = await world.nextCheck(DOMAIN)
    return roles(seen).join() === 'active,active' && seen
  })
  t.ok(selectors(after).every((selector) => !first.includes(selector)))
  world.setZone(DOMAIN, toPublish(after))
  await world.publish()
  const beforeLast = arrived.length
  load.resume()
  await arrivals(Math.max(MESSAGES, beforeLast + MESSAGES * 0.3))
  const sent = await load.pause()

  t.comment(`${sent} messages`)
  t.equal(arrived.length, sent)
  t.equal(new Set(world.sink.mails.map(({ to }) => to)).size, sent, 'each recipient once')
  const isBad = (verdicts: SignatureVerdict[]): boolean =>
    verdicts.length !== 2 || verdicts.some(({ isGood }) => !isGood)
  t.same(arrived.filter(isBad), [], 'all verify')
  t.ok(
    arrived.some((verdicts) => verdicts.some(({ selector }) => first.includes(selector))),
    'some by the old keys',
  )
  t.ok(arrived.slice(beforeLast).every(usesNew), 'none by the old keys once they were over')
  t.match(recordOf(await world.verify(DOMAIN), 'dkim'), { status: 'verified' })
  const third = await api.post(`/domains/${DOMAIN}/dkim/rotate`, {})
  t.equal(third.status, 200, 'it can be rotated again')
})

interface Load {
  /** Sends nothing more; resolves with how many were sent, once all of them have arrived. */
  pause(): Promise<number>
  resume(): void
}

/** A few apps that send one message after the other, until the pause. */
function startLoad({ appliance }: DomainWorld, arrived: () => number): Load {
  let sent = 0
  let isPaused = false
  let senders: Promise<unknown> = Promise.resolve()
  const send = async (): Promise<void> => {
    for (;;) {
      await until('there is room', () => isPaused || sent < arrived() + MOST_UNDER_WAY, ARRIVAL_DEADLINE)
      if (isPaused) return
      const number = sent++
      await appliance.api.send({
        to: `ada${number}@dest.test`,
        from: `orders@${DOMAIN}`,
        subject: `Order ${number}`,
        text: `Order ${number}\n`,
      })
    }
  }
  const load: Load = {
    async pause() {
      isPaused = true
      await senders
      await until('all have arrived', () => arrived() >= sent, ARRIVAL_DEADLINE)
      return sent
    },
    resume() {
      isPaused = false
      senders = Promise.all(Array.from({ length: SENDERS }, send))
      // Whoever waits for it sees the failure; until then it is not unhandled.
      senders.catch(() => {})
    },
  }
  load.resume()
  return load
}

function roles({ records }: DomainBody): string[] {
  return records
    .filter(({ purpose }) => purpose === 'dkim')
    .map(({ role }) => role ?? 'active')
    .sort()
}

function selectors({ records }: DomainBody): string[] {
  return records.filter(({ purpose }) => purpose === 'dkim').map(({ name }) => name.slice(0, name.indexOf('.')))
}
