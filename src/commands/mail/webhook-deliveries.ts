/**
 * `sternpost webhook deliveries` and `replay`: what was sent to endpoints, and sending it again (http/README.md
 * "Webhooks").
 *
 * The API knows deliveries by their endpoint: where none is named, all endpoints are asked.
 */
import { Option, type Command } from 'commander'
import { HOUR, systemClock } from '../../base/clock.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { callServer, listFromServer, pagesFromServer, type Query } from '../shared/api-client.ts'
import { countFlag, misuse, timeFlag } from '../shared/flag-values.ts'
import { isTerminal, printNote, printResult, tableText } from '../shared/print.ts'
import { progressLine } from '../shared/progress-line.ts'
import { showReplayProgress } from './replay-progress.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { collect } from '../shared/shared-options.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'
import { DELIVERY_HEADS, deliveryRow, type DeliveryView } from './webhook-report.ts'

interface DeliveriesFlags extends VerbFlags {
  status?: string
  event?: string
  message?: string
  endpoint?: string
  limit: string
}

interface ReplayFlags extends VerbFlags {
  endpoint?: string
  since?: string
  until?: string
  status: string
  event?: string[]
}

const STATUSES = ['pending', 'succeeded', 'failed', 'skipped']
/** All of 100,000 among a million took 13 s on a busy machine: there may be many millions, and slower ones. */
const REPLAY_PATIENCE = HOUR
const REPLAYED_STATUSES = ['failed', 'skipped', 'all']

export function addDeliveryCommands(webhook: Command): void {
  addVerb(webhook, {
    words: 'deliveries',
    description: 'list events on their way to endpoints, newest first; failed ones are dead letters',
    example: 'sternpost webhook deliveries --status failed',
  })
    .addOption(new Option('--status <status>', 'in this state').choices(STATUSES))
    .option('--event <kind>', 'of this kind')
    .option('--message <id>', 'about this message')
    .option('--endpoint <id>', 'to this endpoint (default: to all)')
    .option('--limit <count>', 'at most so many', '50')
    .action(deliveries)
  addVerb(webhook, {
    words: 'replay [id]',
    description: 'send one delivery again, or those of an endpoint since a time',
    example: [
      'sternpost webhook replay whd_01kapg6t3vq8x2m5r7w9y4c6dn',
      'sternpost webhook replay --endpoint wh_01kapg6t3vq8x2m5r7w9y4c6dm --since 2h',
    ].join('\n'),
  })
    .option('--endpoint <id>', 'the endpoint')
    .option('--since <time>', 'events since then: 2h, 2026-11-21, 2026-11-21T12:00')
    .option('--until <time>', 'events until then')
    .addOption(new Option('--status <status>', 'deliveries in this state').choices(REPLAYED_STATUSES).default('failed'))
    .option('--event <kind>', 'of this kind; repeat for several', collect)
    .action(replay)
}

async function deliveries(flags: DeliveriesFlags): Promise<void> {
  const server = serverAddress(flags)
  const most = countFlag('--limit', flags.limit)
  const query = { status: flags.status, event: flags.event, message_id: flags.message }
  const endpoints = flags.endpoint === undefined ? await endpointIds(server) : [flags.endpoint]
  const found: DeliveryView[] = []
  for (const endpoint of endpoints) found.push(...(await newestOf(server, { endpoint, query, most: most + 1 })))
  found.sort((left, right) => right.created_at - left.created_at)
  const shown = found.slice(0, most)
  printResult(flags, shown, () => tableText(DELIVERY_HEADS, shown.map(deliveryRow), isTerminal()))
  if (found.length === 0) printNote(flags, 'No such delivery.')
  if (found.length > most) printNote(flags, `There are more than these ${most}: raise --limit.`)
}

interface Wanted {
  endpoint: string
  query: Query
  most: number
}

async function newestOf(server: ServerAddress, { endpoint, query, most }: Wanted): Promise<DeliveryView[]> {
  const found: DeliveryView[] = []
  for await (const page of pagesFromServer(server, `${pathOf(endpoint)}/deliveries`, query)) {
    found.push(...page.map((entry) => readAnswer<DeliveryView>(entry, 'id', 'event', 'status', 'created_at')))
    if (found.length >= most) break
  }
  return found
}

async function replay(id: string | undefined, flags: ReplayFlags): Promise<void> {
  const server = serverAddress(flags)
  if (id === undefined) return replaySince(server, flags)
  if (flags.since !== undefined) throw misuse('give the id of one delivery, or --endpoint with --since')
  const endpoint = flags.endpoint ?? (await endpointOf(server, id))
  const path = `${deliveryPath(endpoint, id)}/replay`
  const answer = await callServer(server, { method: 'POST', path, body: {} })
  const queued = readAnswer<{ id: string }>(answer, 'id')
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
  const answer = await withProgress({ server, endpoint, flags }, () =>
    callServer(server, { method: 'POST', path: `${pathOf(endpoint)}/replay`, body, patience: REPLAY_PATIENCE }),
  )
  const replayed = readAnswer<{ queued: number }>(answer, 'queued')
  printResult(flags, replayed, () => `${replayed.queued} ${replayed.queued === 1 ? 'delivery' : 'deliveries'} queued\n`)
}

interface ReplayWork {
  server: ServerAddress
  endpoint: string
  flags: ReplayFlags
}

/** The server goes through all that ended since, which may be millions, and answers at the end. */
async function withProgress<Answer>(
  { server, endpoint, flags }: ReplayWork,
  work: () => Promise<Answer>,
): Promise<Answer> {
  const line = progressLine(flags)
  const ended = new AbortController()
  const pending = async (): Promise<number> => {
    const answer = await callServer(server, { method: 'GET', path: pathOf(endpoint) })
    return readAnswer<{ pending: number }>(answer, 'pending').pending
  }
  if (line.isShown) void showReplayProgress({ clock: systemClock, pending, show: line.show, signal: ended.signal })
  try {
    return await work()
  } finally {
    ended.abort()
    line.end()
  }
}

/** Whose delivery it is. */
async function endpointOf(server: ServerAddress, id: string): Promise<string> {
  for (const endpoint of await endpointIds(server)) {
    if (await isThere(server, deliveryPath(endpoint, id))) return endpoint
  }
  throw new ProcessExit(
    EXIT.failed,
    `sternpost: no endpoint has the delivery ${id}. List: sternpost webhook deliveries`,
  )
}

async function isThere(server: ServerAddress, path: string): Promise<boolean> {
  try {
    await callServer(server, { method: 'GET', path })
    return true
  } catch (thrown) {
    if (thrown instanceof ProcessExit && thrown.exitCode === EXIT.failed) return false
    throw thrown
  }
}

async function endpointIds(server: ServerAddress): Promise<string[]> {
  const endpoints = await listFromServer(server, '/v1/webhooks')
  return endpoints.map((endpoint) => readAnswer<{ id: string }>(endpoint, 'id').id)
}

function deliveryPath(endpoint: string, id: string): string {
  return `${pathOf(endpoint)}/deliveries/${encodeURIComponent(id)}`
}

function pathOf(endpoint: string): string {
  return `/v1/webhooks/${encodeURIComponent(endpoint)}`
}
