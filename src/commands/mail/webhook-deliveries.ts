/**
 * `sternpost webhook deliveries` and `replay`: what was sent to endpoints, and sending it again (http/README.md
 * "Webhooks").
 *
 * The API knows deliveries by their endpoint: where none is named, all endpoints are asked.
 */
import { Option, type Command } from 'commander'
import * as wire from '../../api/webhook.ts'
import { SECOND, systemClock, type Clock } from '../../base/clock.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import {
  ask,
  askAll,
  askPages,
  callServer,
  LONG_PATIENCE,
  readAnswer,
  unlessExit,
  type ApiPath,
} from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { collect, countFlag, misuse, timeFlag } from '../shared/flag-values.ts'
import { printResult, progressLine } from '../shared/print.ts'
import { countOf, preciseTime, printable, type Columns } from '../shared/text.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { pause, addVerb, LIMIT_FLAG, printFirst, type LimitFlags, type Given, type VerbFlags } from '../shared/verb.ts'

type DeliveriesFlags = LimitFlags & Given<'status' | 'event' | 'message' | 'endpoint'>

type ReplayFlags = VerbFlags & Given<'endpoint' | 'since' | 'until'> & { status: string; event?: string[] }

const STATUSES = ['pending', 'succeeded', 'failed', 'skipped']
const REPLAYED_STATUSES = ['failed', 'skipped', 'all']

export function addDeliveryCommands(webhook: Command): void {
  const listed = 'list events on their way to endpoints, newest first; failed ones are dead letters'
  addVerb(webhook, 'deliveries', listed, '--status failed')
    .addOption(new Option('--status <status>', 'in this state').choices(STATUSES))
    .option('--event <kind>', 'of this kind')
    .option('--message <id>', 'about this message')
    .option('--endpoint <id>', 'to this endpoint (default: to all)')
    .option(...LIMIT_FLAG)
    .action(deliveries)
  const replayed = 'send one delivery again, or those of an endpoint since a time'
  const examples = 'whd_01kapg6t3vq8x2m5r7w9y4c6dn\n--endpoint wh_01kapg6t3vq8x2m5r7w9y4c6dm --since 2h'
  addVerb(webhook, 'replay [id]', replayed, examples)
    .option('--endpoint <id>', 'the endpoint')
    .option('--since <time>', 'events since then: 2h, 2026-11-21, 2026-11-21T12:00')
    .option('--until <time>', 'events until then')
    .addOption(new Option('--status <status>', 'deliveries in this state').choices(REPLAYED_STATUSES).default('failed'))
    .option('--event <kind>', 'of this kind; repeat for several', collect)
    .action(replay)
}

export function pathOf(endpoint: string): ApiPath {
  return `/v1/webhooks/${encodeURIComponent(endpoint)}`
}

export const DELIVERY_COLUMNS: Columns<wire.WebhookDeliveryJson> = {
  CREATED: (delivery) => preciseTime(delivery.created_at),
  STATUS: ({ status }) => status,
  EVENT: ({ event }) => event,
  ATTEMPTS: ({ attempts }) => attempts,
  NEXT: ({ next_attempt_at: nextAt }) => (nextAt === null ? null : preciseTime(nextAt)),
  MESSAGE: (delivery) => delivery.message_id,
  ID: ({ id }) => id,
}

async function deliveries(flags: DeliveriesFlags): Promise<void> {
  const words = { whenNone: 'No such delivery.', whenMore: ': raise --limit.' }
  await printFirst(flags, DELIVERY_COLUMNS, newestOfAll(flags), words)
}

/** One page with as many of each endpoint as may be shown, and one more. */
async function* newestOfAll(flags: DeliveriesFlags): AsyncGenerator<wire.WebhookDeliveryJson[]> {
  const server = serverAddress(flags)
  const most = countFlag('--limit', flags.limit) + 1
  const query = { status: flags.status, event: flags.event, message_id: flags.message }
  const endpoints = flags.endpoint === undefined ? await endpointIds(server) : [flags.endpoint]
  const found: wire.WebhookDeliveryJson[] = []
  for (const endpoint of endpoints) {
    const before = found.length
    for await (const page of askPages(server, wire.webhookDeliverySchema, `${pathOf(endpoint)}/deliveries`, query)) {
      found.push(...page)
      if (found.length - before >= most) break
    }
  }
  yield found.sort((left, right) => right.created_at - left.created_at)
}

async function replay(id: string | undefined, flags: ReplayFlags): Promise<void> {
  const server = serverAddress(flags)
  if (id === undefined) return replaySince(server, flags)
  if (flags.since !== undefined) throw misuse('give the id of one delivery, or --endpoint with --since')
  const endpoint = flags.endpoint ?? (await endpointOf(server, id, flags))
  const queued = await ask(server, wire.webhookDeliverySchema, `POST ${deliveryPath(endpoint, id)}/replay`)
  printResult(flags, queued, () => `${queued.id} is the new delivery in place of ${id}\n`)
}

async function replaySince(server: ServerAddress, flags: ReplayFlags): Promise<void> {
  const { endpoint, since, until, status, event: events } = flags
  if (endpoint === undefined || since === undefined) {
    throw misuse('give the id of one delivery, or --endpoint with --since')
  }
  const body = {
    since: Number(timeFlag('--since', since)),
    until: until === undefined ? undefined : Number(timeFlag('--until', until)),
    status,
    events,
  }
  const line = progressLine(flags)
  const ended = new AbortController()
  const pending = async (): Promise<number> =>
    (await ask(server, wire.webhookEndpointSchema, `GET ${pathOf(endpoint)}`)).pending
  if (line.isShown) void showReplayProgress({ clock: systemClock, pending, show: line.show, signal: ended.signal })
  const call = callServer(server, `POST ${pathOf(endpoint)}/replay`, { body, patience: LONG_PATIENCE })
  const answer = await call.finally(() => {
    ended.abort()
    line.end()
  })
  const replayed = readAnswer(wire.replayedSchema, answer)
  printResult(flags, replayed, () => `${countOf(replayed.queued, 'delivery', 'deliveries')} queued\n`)
}

interface ReplayProgressOptions {
  clock: Clock
  /** Deliveries that wait for the endpoint now. */
  pending: () => Promise<number>
  show: (text: string) => void
  signal: AbortSignal
}

const LOOK_EVERY = 2 * SECOND

/**
 * The server goes through all that ended since, which may be millions, and answers at the end: meanwhile the number
 * that waits for the endpoint is asked for every two seconds. Resolves when the signal says so. Never rejects: a
 * question that fails is asked again.
 */
export async function showReplayProgress({ clock, pending, show, signal }: ReplayProgressOptions): Promise<void> {
  const startedAt = clock.now()
  for (;;) {
    await pause(clock, LOOK_EVERY, signal)
    if (signal.aborted) return
    const count = await pending().catch(() => null)
    // The result is printed meanwhile.
    if (signal.aborted) return
    const waiting = count === null ? '' : `, ${count} deliveries wait for the endpoint`
    show(`replaying for ${Math.round((clock.now() - startedAt) / SECOND)} s${waiting}`)
  }
}

/** Whose delivery it is. */
async function endpointOf(server: ServerAddress, id: string, flags: VerbFlags): Promise<string> {
  for (const endpoint of await endpointIds(server)) {
    const found = await unlessExit(EXIT.failed, () => callServer(server, `GET ${deliveryPath(endpoint, id)}`))
    if (found !== null) return endpoint
  }
  const list = commandText(flags, { verb: 'webhook deliveries' })
  const text = `sternpost: no endpoint has the delivery ${printable(id)}. List: ${list}`
  throw new ProcessExit(EXIT.failed, text)
}

async function endpointIds(server: ServerAddress): Promise<string[]> {
  return (await askAll(server, wire.webhookEndpointSchema, '/v1/webhooks')).map(({ id }) => id)
}

function deliveryPath(endpoint: string, id: string): ApiPath {
  return `${pathOf(endpoint)}/deliveries/${encodeURIComponent(id)}`
}
