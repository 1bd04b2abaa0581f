/**
 * After many mixed outcomes, the statistics of each IP are what the receiver counted: attempts, deliveries, deferrals
 * and bounces by type, in all and by mailbox provider.
 */
import t from 'tap'
import { HOUR } from '../../src/base/clock.ts'
import type { NotedTry } from '../support/noting-sink.ts'
import { randomSource } from '../support/random-source.ts'
import { DESTINATIONS, sendBatch, startWarmingScene } from '../support/warming-scene.ts'

const MESSAGES = process.env['TEST_SCALE'] === 'full' ? 10_000 : 1_500
const SEED = Number(process.env['TEST_SEED'] ?? Date.now() % 1_000_000)
const IPS = ['127.0.0.11', '127.0.0.12']
/** What the sink answers, by how the name of the recipient begins; the rest is taken. */
const AT_RECIPIENT: Record<string, string> = {
  hard: '550 5.1.1 No such user here',
  soft: '552 5.3.4 Message too big for system',
  odd: '550 5.0.0 No',
  later: '451 4.3.0 Please come back',
}
const AT_DOT: Record<string, string> = { spam: '554 5.7.1 Message content rejected, UBE' }
/** As often as it stands here. */
const KINDS = [...Array.from({ length: 12 }, () => 'taken'), 'hard', 'soft', 'odd', 'later', 'later', 'spam', 'spam']

t.setTimeout(600_000)

t.test('the statistics of an IP are what the sink counted', async (t) => {
  const random = randomSource(SEED)
  t.comment(`seed ${SEED} (TEST_SEED)`)
  const ips = IPS.map((address, index) => ({ address, hostname: `mta${index + 1}.sternpost.test`, warmed: true }))
  const { api, sink, server, pass } = await startWarmingScene(t, { default: { ips } })
  const kindOf = (recipient: string): string => recipient.split('-')[0] ?? ''
  const seen = new Set<string>()
  sink.answerRecipients((recipient) => {
    const isAgain = seen.has(recipient)
    seen.add(recipient)
    return isAgain ? undefined : AT_RECIPIENT[kindOf(recipient)]
  })
  sink.answerMail((recipient) => AT_DOT[kindOf(recipient)])

  const from = Math.floor(server.clock.now() / 1_000)
  const ids = await sendBatch(
    api,
    Array.from(
      { length: MESSAGES },
      (_, index) => `${random.oneOf(KINDS)}-${index}@${random.oneOf(DESTINATIONS).domain}`,
    ),
  )
  await pass(1)
  await pass(2 * HOUR, HOUR / 4)
  const to = Math.floor(server.clock.now() / 1_000) + 1
  t.equal(new Set(sink.tries.map(({ recipient }) => recipient)).size, ids.length, 'each was tried')

  for (const ip of IPS) {
    const { body } = await api.get(`/ips/${ip}/stats?from=${from}&to=${to}&interval=hour`)
    const { totals, by_provider: providers } = body['data'] as Statistics
    const tries = sink.tries.filter(({ source }) => source === ip)
    const counted = countOf(tries)
    t.ok(tries.length > MESSAGES / 4, `${ip} had its part: ${tries.length}`)
    t.same(pick(totals, Object.keys(counted)), counted, `${ip} in all`)
    const named = DESTINATIONS.map(({ isp, domain }) => {
      const { delivered, deferred, bounced } = countOf(tries.filter(({ recipient }) => recipient.endsWith(domain)))
      return { isp, delivered, deferred, bounced }
    })
    const shown = providers.map((one) => pick(one, ['isp', 'delivered', 'deferred', 'bounced']))
    const byName = (one: { isp?: unknown }, other: { isp?: unknown }): number =>
      String(one.isp) < String(other.isp) ? -1 : 1
    t.same(shown.toSorted(byName), named.toSorted(byName), `${ip} by provider`)
    t.comment(`${ip}: ${JSON.stringify(counted)}`)
  }
})

interface Statistics {
  totals: Record<string, unknown>
  by_provider: Record<string, unknown>[]
}

function countOf(tries: readonly NotedTry[]): Record<string, number> {
  const withReply = (reply: string | undefined): number => tries.filter((one) => one.reply === reply).length
  const hard = withReply(AT_RECIPIENT['hard'])
  const soft = withReply(AT_RECIPIENT['soft'])
  const undetermined = withReply(AT_RECIPIENT['odd'])
  const block = withReply(AT_DOT['spam'])
  return {
    messages: new Set(tries.map(({ recipient }) => recipient)).size,
    attempts: tries.length,
    delivered: tries.filter(({ reply }) => reply.startsWith('2')).length,
    deferred: tries.filter(({ reply }) => reply.startsWith('4')).length,
    bounced: hard + soft + block + undetermined,
    bounced_hard: hard,
    bounced_soft: soft,
    bounced_block: block,
    bounced_undetermined: undetermined,
    queued_now: 0,
  }
}

function pick(found: Record<string, unknown>, names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(names.map((name) => [name, found[name]]))
}
