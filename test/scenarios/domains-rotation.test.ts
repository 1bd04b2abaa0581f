/**
 * A DKIM key is rotated while mail goes out: 2,000 messages, each verified by the receiver when it arrives, against
 * what the DNS says at that moment, while the owner publishes the new key and later takes the old one away.
 */
import t from 'tap'
import { recordOf, startDomainWorld, toPublish } from '../support/domain-world.ts'
import type { DomainBody, DomainWorld } from '../support/domain-world.ts'
import { judgeWithMailauth } from '../support/judges.ts'
import type { SignatureVerdict } from '../support/judges.ts'
import { missingPrograms } from '../support/programs.ts'
import { until } from '../support/until.ts'

const skip = missingPrograms({ unbound: ['unbound'] })

const MESSAGES = 2_000
const SENDERS = 16
const DOMAIN = 'acme.test'
const SECOND = 1_000
const DAY = 86_400 * SECOND
const ARRIVAL_DEADLINE = 60 * SECOND

t.test('2,000 messages while the key rotates: every one verifies with the DNS of its moment', { skip }, async (t) => {
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
  const load = startLoad(world)
  const arrivals = (count: number): Promise<unknown> =>
    until(`${count} mails arrived`, () => arrived.length >= count, ARRIVAL_DEADLINE)

  load.upTo(1_400)
  await arrivals(150)
  const rotated = await api.post(`/domains/${DOMAIN}/dkim/rotate`, {})
  t.equal(rotated.status, 200)
  const next = (rotated.body['data'] as DomainBody).records.filter(({ role }) => role === 'next')
  t.equal(next.length, 2, 'a next key of each kind')
  t.ok(next.every(({ required }) => !required))
  t.match(await api.post(`/domains/${DOMAIN}/dkim/rotate`, {}), { status: 409, body: { error: { code: 'conflict' } } })
  t.same(roles(await world.verify(DOMAIN)), ['active', 'active', 'next', 'next'], 'not published, not used')

  await arrivals(300)
  world.setZone(DOMAIN, [...toPublish(before), ...next.map(({ name, type, value }) => ({ name, type, value }))])
  await world.publish()
  t.same(roles(await world.verify(DOMAIN)), ['active', 'active', 'next', 'next'], 'seen once is not enough')
  await arrivals(500)
  await until('the keys have switched', async () => {
    const seen = await world.nextCheck(DOMAIN)
    return roles(seen).join() === 'active,active,retiring,retiring'
  })
  const usesNew = (verdicts: SignatureVerdict[]): boolean => verdicts.every(({ selector }) => !first.includes(selector))
  await until('the new keys sign', () => arrived.some(usesNew), ARRIVAL_DEADLINE)
  await arrivals(1_400)
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
  load.upTo(MESSAGES)
  await load.done
  await arrivals(MESSAGES)

  t.equal(arrived.length, MESSAGES)
  t.equal(new Set(world.sink.mails.map(({ to }) => to)).size, MESSAGES, 'each recipient once')
  const isBad = (verdicts: SignatureVerdict[]): boolean =>
    verdicts.length !== 2 || verdicts.some(({ isGood }) => !isGood)
  t.same(arrived.filter(isBad), [], 'all verify')
  t.ok(arrived.some((verdicts) => verdicts.some(({ selector }) => first.includes(selector))), 'some by the old keys')
  t.ok(arrived.slice(beforeLast).every(usesNew), 'none by the old keys once they were over')
  t.match(recordOf(await world.verify(DOMAIN), 'dkim'), { status: 'verified' })
  const third = await api.post(`/domains/${DOMAIN}/dkim/rotate`, {})
  t.equal(third.status, 200, 'it can be rotated again')
})

interface Load {
  /** Sends on until so many were sent in all. */
  upTo(count: number): void
  done: Promise<void>
}

/** A few apps that send one message after the other. */
function startLoad({ appliance }: DomainWorld): Load {
  let sent = 0
  let target = 0
  const send = async (): Promise<void> => {
    while (sent < MESSAGES) {
      await until('more is wanted', () => sent < target || sent >= MESSAGES, ARRIVAL_DEADLINE)
      if (sent >= MESSAGES) return
      const number = sent++
      await appliance.api.send({
        to: `ada${number}@dest.test`, from: `orders@${DOMAIN}`, subject: `Order ${number}`, text: `Order ${number}\n`,
      })
    }
  }
  const done = Promise.all(Array.from({ length: SENDERS }, send)).then(() => {})
  // Whoever waits for it sees the failure; until then it is not unhandled.
  done.catch(() => {})
  return { upTo: (count) => void (target = count), done }
}

function roles({ records }: DomainBody): string[] {
  return records.filter(({ purpose }) => purpose === 'dkim').map(({ role }) => role ?? 'active').sort()
}

function selectors({ records }: DomainBody): string[] {
  return records.filter(({ purpose }) => purpose === 'dkim').map(({ name }) => name.slice(0, name.indexOf('.')))
}
