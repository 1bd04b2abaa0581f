/**
 * Every simulated recipient in a running sandbox, through the real queue, SMTP, inbound server and tracking links: the
 * events that the inspector gets are those of the contract, each signed, each once.
 */
import t from 'tap'
import { startSandbox } from '../support/sandbox-process.ts'
import { until } from '../support/until.ts'

/** http/README.md "Simulated recipients": the events of each address, in any order. */
const EVENTS: Record<string, string[]> = {
  delivered: ['delivered'],
  hard: ['bounced hard'],
  soft: ['bounced soft'],
  block: ['bounced block'],
  deferred: ['delivered'],
  greylisted: ['delivered'],
  late: ['delivered', 'bounced hard'],
  complained: ['delivered', 'complained'],
  opened: ['delivered', 'opened'],
  clicked: ['delivered', 'opened', 'clicked'],
  suppressed: ['bounced suppressed'],
}
const TARGET = 'https://example.com/orders/1042?a=1&b=2'
const DEADLINE = 240_000

interface HookEntry {
  signature: string
  event: { event: string; data: Record<string, string> }
}

t.setTimeout(600_000)

t.test('each simulated recipient brings its events', async (t) => {
  const { send, list } = await startSandbox(t)
  const ids: Record<string, string> = {}
  for (const name of Object.keys(EVENTS)) {
    ids[name] = await send({
      to: `${name}+label@simulator.sternpost.test`,
      from: 'you@sandbox.test',
      html: `<p>Hello, <a href="${TARGET.replaceAll('&', '&amp;')}">your order</a></p>`,
    })
  }
  const eventsOf = (hooks: readonly HookEntry[], name: string): string[] =>
    hooks
      .filter(({ event }) => event.data['message_id'] === ids[name])
      .map(({ event: { event, data } }) => [event.replace('email.', ''), data['bounce_type']].filter(Boolean).join(' '))
  const wanted = Object.values(EVENTS).flat().length
  const hooks = await until(
    'every event arrived',
    async () => {
      const found = await list<HookEntry>('/dev/hooks/inspector?limit=100')
      return found.length >= wanted && found
    },
    DEADLINE,
  )

  for (const [name, events] of Object.entries(EVENTS)) {
    t.same(eventsOf(hooks, name).toSorted(), events.toSorted(), name)
  }
  t.ok(
    hooks.every(({ signature }) => signature === 'valid'),
    'each is signed',
  )
  const clicked = hooks.find(({ event }) => event.event === 'email.clicked')
  t.equal(clicked?.event.data['url'], TARGET, 'the click names the target as written')
})
