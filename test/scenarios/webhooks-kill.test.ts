/**
 * The process is killed while events go out to endpoints that work, fail, hang and come back, and started again: each
 * event reaches each endpoint at least once, and none is lost; dead letters get through when they are replayed.
 */
import t from 'tap'
import { startSandbox, temporaryFolder, type SandboxProcess, type Teardown } from '../support/sandbox-process.ts'
import { until } from '../support/until.ts'
import { webhookReceiver, type ReceiverAnswer, type WebhookReceiver } from '../support/webhook-receiver.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
/** Each is an event for four endpoints. */
const MESSAGES = IS_FULL ? 25_000 : 120
const RATE_DEADLINE = 120_000
const BATCH = Math.min(MESSAGES, 500)
const KILLS = 2
const DEADLINE = IS_FULL ? 900_000 : 180_000
/** A little more than each of the delays between the tries (webhooks/README.md "Deliveries"). */
const DELAYS = ['62s', '310s', '31m', '123m', '1470m']

/** Milliseconds without a post. */
const QUIET = 400

t.setTimeout(IS_FULL ? 3_600_000 : 600_000)

interface Endpoint {
  id: string
  receiver: WebhookReceiver
  /** Messages that were told with an answer of 200. */
  told(): Set<string>
  /** From now on it answers this. */
  turn(answer: ReceiverAnswer): void
}

async function registerEndpoint(t: Teardown, server: SandboxProcess, first: ReceiverAnswer): Promise<Endpoint> {
  const receiver = await webhookReceiver(first)
  t.teardown(() => receiver.close())
  const made = await server.ask('POST', '/v1/webhooks', { url: receiver.url, events: ['email.delivered'] })
  // Where a run of answers of 200 begins.
  let goodFrom = first === 200 ? 0 : Infinity
  let seen = 0
  const ids = new Set<string>()
  return {
    id: (made['data'] as { id: string }).id,
    receiver,
    told() {
      for (; seen < receiver.requests.length; seen += 1) {
        if (seen >= goodFrom) ids.add(messageIdIn(receiver.requests[seen]?.body))
      }
      return ids
    },
    turn(answer) {
      if (answer === 200) goodFrom = receiver.requests.length
      receiver.answerWith(answer)
    },
  }
}

function messageIdIn(body: Buffer | undefined): string {
  return (JSON.parse(body?.toString() ?? '{}') as { data: { message_id: string } }).data.message_id
}

async function sendBatches(server: SandboxProcess): Promise<string[]> {
  const ids: string[] = []
  for (let sent = 0; sent < MESSAGES; sent += BATCH) {
    const recipients = Array.from({ length: BATCH }, (_, index) => ({ to: `reader-${sent + index}@dest.test` }))
    const batch = { from: 'shop@sandbox.test', subject: 'News', text: 'Hello', recipients }
    // More than the key's rate of recipients: some have to wait.
    const results = await until(
      'the batch is accepted',
      async () => {
        const answer = await server.ask('POST', '/v1/email/batch', batch)
        return answer['success'] === true && (answer['results'] as { message_id: string }[])
      },
      RATE_DEADLINE,
    )
    for (const { message_id: id } of results) ids.push(id)
  }
  return ids
}

/** Jumps from one retry to the next, whenever it has become quiet at these endpoints, until it is over. */
async function passTime(
  server: SandboxProcess,
  endpoints: Endpoint[],
  what: string,
  isOver: () => boolean | Promise<boolean>,
): Promise<void> {
  const countPosts = (): number => endpoints.reduce((sum, { receiver }) => sum + receiver.requests.length, 0)
  let posts = countPosts()
  let quietSince = performance.now()
  let jumps = 0
  await until(
    what,
    async () => {
      const now = countPosts()
      if (now !== posts) quietSince = performance.now()
      posts = now
      if (performance.now() - quietSince < QUIET) return false
      if (await isOver()) return true
      await server.ask('POST', '/dev/clock', { advance: DELAYS[jumps % DELAYS.length] })
      jumps += 1
      quietSince = performance.now()
      return false
    },
    DEADLINE,
  )
}

async function count(server: SandboxProcess, { id }: Endpoint, field: string): Promise<number> {
  const { data } = await server.ask('GET', `/v1/webhooks/${id}`)
  return (data as Record<string, number>)[field] ?? -1
}

t.test('every event reaches every endpoint, whatever is killed and whoever fails', async (t) => {
  const folder = temporaryFolder(t)
  let server = await startSandbox(t, { folder })
  const steady = await registerEndpoint(t, server, 200)
  const failing = await registerEndpoint(t, server, 500)
  const hanging = await registerEndpoint(t, server, 'hang')
  const dead = await registerEndpoint(t, server, 503)
  const all = [steady, failing, hanging, dead]

  const messageIds = new Set(await sendBatches(server))
  t.equal(messageIds.size, MESSAGES)
  for (let kill = 1; kill <= KILLS; kill += 1) {
    const enough = Math.floor((MESSAGES * kill) / (KILLS + 2))
    await until(`${enough} were told`, () => steady.told().size >= enough, DEADLINE)
    await server.kill()
    t.ok(steady.told().size < MESSAGES, `kill ${kill}: ${steady.told().size} of ${MESSAGES} were told`)
    server = await startSandbox(t, { folder })
  }
  // What a kill caught between its final dot and the commit waits for `delivery.uncertain_retry`.
  await server.ask('POST', '/dev/clock', { advance: '6m' })
  await until('all were told to the endpoint that works', () => steady.told().size === MESSAGES, DEADLINE)
  await until(
    'all were tried where it fails',
    async () => (await count(server, failing, 'consecutive_failures')) >= MESSAGES,
    DEADLINE,
  )

  failing.turn(200)
  hanging.turn(200)
  await passTime(
    server,
    [dead],
    'one has dead letters alone',
    async () => (await count(server, dead, 'dead_letters')) === MESSAGES,
  )
  const back = [failing, hanging]
  // Posts that hung when it came back fail only now, and are due again after the first of the delays.
  await passTime(server, back, 'they came back', () => back.every(({ told }) => told().size === MESSAGES))
  t.equal(await count(server, dead, 'pending'), 0)

  dead.turn(200)
  const replayed = await server.ask('POST', `/v1/webhooks/${dead.id}/replay`, { status: 'failed' })
  t.same(replayed['data'], { queued: MESSAGES })
  await until('the dead letters are told', () => dead.told().size === MESSAGES, DEADLINE)
  for (const { told } of all)
    t.same(
      [...told()].filter((id) => !messageIds.has(id)),
      [],
    )
  const posts = all.map(({ receiver }) => receiver.requests.length)
  t.comment(`${MESSAGES} events to 4 endpoints, ${KILLS} kills: none lost; posts by endpoint: ${posts.join(', ')}`)
})
