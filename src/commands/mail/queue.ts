/**
 * `sternpost queue`: what waits and why, and what an operator does to it (commands/README.md "The command line",
 * http/README.md "Explain").
 *
 * Every action on many messages first says how many there are; without --yes it changes nothing and ends with 64.
 */
import { Option, type Command } from 'commander'
import { explanationSchema } from '../../api/message.ts'
import * as wire from '../../api/queue.ts'
import { SECOND } from '../../base/clock.ts'
import { askRows, callServer, LONG_PATIENCE, readAnswer, withQuery } from '../shared/api-client.ts'
import { instantFlag, misuse } from '../shared/flag-values.ts'
import { printList, printResult } from '../shared/print.ts'
import { countOf, localTime, type Columns } from '../shared/text.ts'
import { addVerb, isConfirmed, type ConsentFlags, type Given, type VerbFlags } from '../shared/verb.ts'
import { explanationReport } from './message-report.ts'
import { pathOf } from './message.ts'

/** `done`: `12 messages would be …`, `12 messages …`. */
const ACTIONS = {
  retry: { done: 'tried now', description: 'try deferred messages now', example: '--provider gmail --yes' },
  hold: {
    done: 'held',
    description: 'keep messages from being sent until they are released; their lifetime goes on',
    example: '--domain acme.com --yes',
  },
  release: { done: 'released', description: 'let messages go that are held', example: '--domain acme.com --yes' },
  drop: {
    done: 'canceled',
    description: 'cancel messages that wait; each is told as email.canceled',
    example: '--recipient-domain example.net --yes',
  },
}

export function addQueueCommands(program: Command): void {
  const queue = program.command('queue').description('mail that waits')
  const listed = 'list what waits, in groups, largest first'
  withQueueFilter(addVerb(queue, 'list', listed, '--by recipient-domain --provider gmail'))
    .addOption(
      new Option('--by <group>', 'what makes a group: what the option of this name restricts')
        .choices(Object.keys(HEADS))
        .default('provider'),
    )
    .action(list)
  addVerb(queue, 'explain <id>', 'say why a message is where it is', 'msg_01kapg6t3vq8x2m5r7w9y4c6de').action(explain)
  for (const action of ['retry', 'hold', 'release', 'drop'] as const) {
    const { description, example, done } = ACTIONS[action]
    withQueueFilter(addVerb(queue, action, description, example))
      .option('--yes', 'do it')
      .action((flags: ActionFlags) => act(flags, { action, done }))
  }
  withQueueFilter(addVerb(queue, 'move', 'move messages to another pool', '--pool bulk --to default --yes'))
    .requiredOption('--to <pool>', 'pool of pools.yaml that they leave from then')
    .option('--yes', 'do it')
    .action((flags: ActionFlags & { to: string }) =>
      act(flags, { action: 'move', done: `moved to ${flags.to}`, pool: flags.to }),
    )
}

/** What makes a group, each the name of an option that restricts to one. */
const HEADS = {
  provider: 'PROVIDER',
  'recipient-domain': 'RECIPIENT DOMAIN',
  domain: 'SENDING DOMAIN',
  ip: 'LAST IP',
  pool: 'POOL',
}

async function list(flags: VerbFlags & FilterFlags & { by: keyof typeof HEADS }): Promise<void> {
  const { held, accepted_before: before, ...filter } = queueFilter(flags)
  const query = { ...filter, held: held?.toString(), accepted_before: before?.toString() }
  const by = flags.by.replace('-', '_')
  const groups = await askRows(flags, wire.queueGroupSchema, withQuery('/v1/admin/queue', { by, ...query }))
  const columns: Columns<wire.QueueGroupJson> = {
    [HEADS[flags.by]]: ({ name }) => name ?? 'not known yet',
    WAITING: ({ waiting }) => waiting,
    DUE: ({ due }) => due,
    HELD: (group) => group.held,
    'OLDEST ACCEPTED': (group) => localTime(group.oldest_accepted_at),
  }
  printList(flags, columns, groups, 'Nothing waits there.')
}

async function explain(id: string, flags: VerbFlags): Promise<void> {
  const whenMissing = '`sternpost message list` shows which there are'
  const answer = await callServer(flags, `GET ${pathOf(id)}/explain`, { whenMissing })
  const explanation = readAnswer(explanationSchema, answer)
  printResult(flags, explanation, () => explanationReport(explanation))
}

type ActionFlags = ConsentFlags & FilterFlags

async function act(
  flags: ActionFlags,
  { action, done, pool }: { action: wire.QueueActionBody['action']; done: string; pool?: string },
): Promise<void> {
  const filter = queueFilter(flags)
  refuseBareDate(flags)
  const body = { action, to_pool: pool, filter, dry_run: flags.yes !== true }
  const answer = await callServer(flags, 'POST /v1/admin/queue/actions', { body, patience: LONG_PATIENCE })
  const result = readAnswer(wire.queueActionResultSchema, answer)
  const count = countOf(result.messages, 'message')
  if (result.dry_run && result.messages > 0) {
    const command = { verb: `queue ${action}`, options: { ...filterOptions(filter), to: pool } }
    isConfirmed(flags, { document: result, text: `${count} would be ${done}`, command })
    return
  }
  printResult(flags, result, () => `${count} ${done}\n`)
}

/** Which waiting messages a verb means: its flags, as the server takes them, and as they are typed. */
type FilterFlags = Given<'pool' | 'provider' | 'route' | 'recipientDomain' | 'domain' | 'ip' | 'acceptedBefore'> & {
  held?: boolean
  all?: boolean
}

function withQueueFilter(verb: Command): Command {
  return verb
    .option('--pool <name>', 'in this pool')
    .option('--provider <isp>', 'to this mailbox provider, as events name it')
    .option('--route <name>', 'on this route, as `sternpost path list` names it')
    .option('--recipient-domain <domain>', 'to addresses of this domain')
    .option('--domain <domain>', 'from addresses of this sending domain')
    .option('--ip <address>', 'last tried from this IP')
    .option('--held', 'only those that are held')
    .option(
      '--accepted-before <time>',
      'accepted before this time: 2h (so long ago), 2026-11-21T03:17, 2026-11-21T03:17:00Z',
    )
    .option('--all', 'all of them; the same as no filter')
}

type QueueFilter = ReturnType<typeof queueFilter>

/** What is undefined does not restrict. */
function queueFilter(flags: FilterFlags) {
  const { pool, provider, route, recipientDomain, domain, ip, held, acceptedBefore } = flags
  const filter = {
    pool,
    provider,
    route,
    recipient_domain: recipientDomain,
    domain,
    ip,
    held,
    accepted_before: acceptedBefore === undefined ? undefined : secondsOf(acceptedBefore),
  }
  const isFilter = Object.values(filter).some((value) => value !== undefined)
  if (flags.all === true && isFilter) throw misuse('--all takes no filter beside it')
  return filter
}

/** Rounded up: what was accepted within the second that is named counts as before it. */
function secondsOf(text: string): number {
  return Math.ceil(instantFlag('--accepted-before', text) / SECOND)
}

/** Whose midnight is meant decides which messages are acted on. */
function refuseBareDate({ acceptedBefore: text = '' }: FilterFlags): void {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return
  throw misuse(
    `--accepted-before: "${text}" has no time of day; write ${text}T00:00 (local time) or ${text}T00:00Z (UTC)`,
  )
}

/** As they would be typed. */
function filterOptions({ accepted_before: time, recipient_domain: recipientDomain, ...others }: QueueFilter) {
  const before = time === undefined ? undefined : new Date(time * SECOND).toISOString()
  return { ...others, 'recipient-domain': recipientDomain, 'accepted-before': before }
}
