/** In what order recipient domains without a route are looked up while many of them are slow. */
import t from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { createRouteDomains } from '../../src/delivery/route/route-domains.ts'
import type { RecipientRoute } from '../../src/delivery/route/route-message.ts'
import type { ClaimedMessage } from '../../src/store/records/claim-records.ts'
import type { RouteAssignment } from '../../src/store/records/queue-records.ts'
import { manualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

/** src/delivery/route/route-domains.ts: so many are looked up at once. */
const AT_ONCE = 50

t.test('a domain that comes last does not stand behind thousands that are slow', async (t) => {
  const clock = manualClock(1_000_000)
  const asked: string[] = []
  const answers = new Map<string, () => void>()
  const assigned: RouteAssignment[] = []
  const domains = createRouteDomains({
    clock,
    logger: createLogger({ level: 'silent' }),
    store: {
      assignRoutes: async (batch) => {
        assigned.push(...batch)
        return []
      },
      claimUnrouted: async () => ({ messages: [], suppressed: 0 }),
      unroutedDomains: async () => [],
    },
    routes: {
      fresh: () => undefined,
      find(domain) {
        asked.push(domain)
        return new Promise((resolve) => void answers.set(domain, () => resolve(routeOf(domain))))
      },
    },
    lease: () => ({ epoch: 1, leaseUntil: clock.now() }),
    mayClaim: () => true,
    hold: (messages) => messages,
    onEvents: () => undefined,
    onAssigned: () => undefined,
    onDnsAnswer: async () => undefined,
  })
  domains.start()
  const slow = Array.from({ length: 4_999 }, (_, index) => `slow-${index}.test`)
  domains.note(slow, clock.now())
  t.equal(asked.length, AT_ONCE)
  t.ok(asked.includes('slow-0.test'), 'the one that waits longest is among them')
  await clock.advance(1)
  domains.note(['new.test'], clock.now())
  // Two of the slow ones are done: one of their turns goes to the newest.
  for (const domain of asked.slice(0, 2)) answers.get(domain)?.()
  await until('it is asked for', () => asked.includes('new.test'))
  t.equal(asked.length, AT_ONCE + 2)
  answers.get('new.test')?.()
  await until('it has its route', () => assigned.some(({ domain }) => domain === 'new.test'))
  const answerAll = async (): Promise<void> => {
    while (assigned.length < slow.length + 1) {
      for (const answer of answers.values()) answer()
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
  await answerAll()
  t.equal(new Set(asked).size, slow.length + 1, 'none of the others is forgotten')
  t.equal(asked.length, slow.length + 1, 'and none is asked for twice')
  await domains.stop()
})

t.test('a full page is followed by the next one, though some of its rows were suppressed', async (t) => {
  const clock = manualClock(1_000_000)
  const row = { id: 'msg' } as ClaimedMessage
  const pages = [
    { messages: Array.from({ length: 199 }, () => row), suppressed: 1 },
    { messages: [row], suppressed: 0 },
  ]
  let [told, judged] = [0, 0]
  const domains = createRouteDomains({
    clock,
    logger: createLogger({ level: 'silent' }),
    store: {
      assignRoutes: async () => [],
      claimUnrouted: async () => pages.shift() ?? { messages: [], suppressed: 0 },
      unroutedDomains: async () => [],
    },
    routes: { fresh: () => undefined, find: async () => ({ kind: 'no-domain' }) as unknown as RecipientRoute },
    lease: () => ({ epoch: 1, leaseUntil: clock.now() }),
    mayClaim: () => true,
    hold: () => undefined,
    onEvents: () => void told++,
    onAssigned: () => undefined,
    onDnsAnswer: async (_answer, messages) => void (judged += messages.length),
  })
  domains.start()
  domains.note(['gone.test'], clock.now())
  await until('all are judged', () => judged === 200)
  t.equal(told, 1)
  await domains.stop()
})

/** What the lookup gives, as far as it is read here. */
function routeOf(domain: string): RecipientRoute {
  const provider = { provider: null, isp: domain, route: `site-${domain}` }
  return { kind: 'hosts', hosts: [], siteKey: domain, provider } as unknown as RecipientRoute
}
