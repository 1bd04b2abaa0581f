/**
 * `sternpost queue`: what waits and why, and what an operator does to it (commands/README.md "The command line",
 * http/README.md "Explain").
 *
 * Every action on many messages first says how many there are; without --yes it changes nothing and ends with 64.
 */
import type { ExplanationJson } from '../../api/message.ts'
import type { QueueActionBody, QueueActionResultJson, QueueGroupJson } from '../../api/queue.ts'
import { Option, type Command } from 'commander'
import { callServer, withQuery } from '../shared/api-client.ts'
import { explanationReport } from './message-report.ts'
import { pathOf } from './message.ts'
import { isTerminal, localTime, printNote, printResult, tableText } from '../shared/print.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, isConfirmed, readAnswer, type ConsentFlags, type VerbFlags } from '../shared/verb.ts'
import { SECOND } from '../../base/clock.ts'
import { misuse } from '../shared/flag-values.ts'

type Action = QueueActionBody['action']

interface ActionWords {
  description: string
  example: string
  /** `12 messages would be …`, `12 messages …`. */
  done: string
}

const ACTIONS: Record<Exclude<Action, 'move'>, ActionWords> = {
  retry: {
    description: 'try deferred messages now',
    example: 'sternpost queue retry --provider gmail --yes',
    done: 'tried now',
  },
  hold: {
    description: 'keep messages from being sent until they are released; their lifetime goes on',
    example: 'sternpost queue hold --domain acme.com --yes',
    done: 'held',
  },
  release: {
    description: 'let messages go that are held',
    example: 'sternpost queue release --domain acme.com --yes',
    done: 'released',
  },
  drop: {
    description: 'cancel messages that wait; each is told as email.canceled',
    example: 'sternpost queue drop --recipient-domain example.net --yes',
    done: 'canceled',
  },
}

export function addQueueCommands(program: Command): void {
  const queue = program.command('queue').description('mail that waits')
  withQueueFilter(
    addVerb(queue, {
      words: 'list',
      description: 'list what waits, in groups, largest first',
      example: 'sternpost queue list --by domain --provider gmail',
    }),
  )
    .addOption(
      new Option('--by <group>', 'what makes a group')
        .choices(['provider', 'domain', 'ip', 'pool'])
        .default('provider'),
    )
    .action(list)
  addVerb(queue, {
    words: 'explain <id>',
    description: 'say why a message is where it is',
    example: 'sternpost queue explain msg_01kapg6t3vq8x2m5r7w9y4c6de',
  }).action(explain)
  for (const action of ['retry', 'hold', 'release', 'drop'] as const) {
    const { description, example } = ACTIONS[action]
    withQueueFilter(addVerb(queue, { words: action, description, example }))
      .option('--yes', 'do it')
      .action((flags: ConsentFlags & QueueFilterFlags) => act(flags, { action, done: ACTIONS[action].done }))
  }
  withQueueFilter(
    addVerb(queue, {
      words: 'move',
      description: 'move messages to another pool',
      example: 'sternpost queue move --pool bulk --to default --yes',
    }),
  )
    .requiredOption('--to <pool>', 'pool of pools.yaml that they leave from then')
    .option('--yes', 'do it')
    .action((flags: ConsentFlags & QueueFilterFlags & { to: string }) =>
      act(flags, { action: 'move', done: `moved to ${flags.to}`, pool: flags.to }),
    )
}

const HEADS = { provider: 'PROVIDER', domain: 'RECIPIENT DOMAIN', ip: 'LAST IP', pool: 'POOL' }

async function list(flags: VerbFlags & QueueFilterFlags & { by: keyof typeof HEADS }): Promise<void> {
  const { held, accepted_before: before, ...filter } = queueFilter(flags)
  const path = withQuery('/v1/admin/queue', {
    by: flags.by,
    ...filter,
    held: held === true ? 'true' : undefined,
    accepted_before: before === undefined ? undefined : String(before),
  })
  const answer = await callServer(serverAddress(flags), { method: 'GET', path })
  const entries: unknown[] = Array.isArray(answer) ? answer : []
  const groups = entries.map((entry) => readAnswer<QueueGroupJson>(entry, 'name', 'waiting', 'due', 'held'))
  const heads = [HEADS[flags.by], 'WAITING', 'DUE', 'HELD', 'OLDEST ACCEPTED']
  printResult(flags, groups, () => tableText(heads, groups.map(groupRow), isTerminal()))
  if (groups.length === 0) printNote(flags, 'Nothing waits there.')
}

function groupRow({ name, waiting, due, held, oldest_accepted_at: oldestAt }: QueueGroupJson): string[] {
  return [name ?? 'not known yet', String(waiting), String(due), String(held), localTime(oldestAt)]
}

async function explain(id: string, flags: VerbFlags): Promise<void> {
  const whenMissing = '`sternpost message list` shows which there are'
  const call = { method: 'GET' as const, path: `${pathOf(id)}/explain`, whenMissing }
  const answer = await callServer(serverAddress(flags), call)
  const explanation = readAnswer<ExplanationJson>(answer, 'message_id', 'summary', 'checks', 'advice')
  printResult(flags, explanation, () => explanationReport(explanation))
}

async function act(
  flags: ConsentFlags & QueueFilterFlags,
  { action, done, pool }: { action: Action; done: string; pool?: string },
): Promise<void> {
  const filter = queueFilter(flags)
  const body = { action, to_pool: pool, filter, dry_run: flags.yes !== true }
  const call = { method: 'POST' as const, path: '/v1/admin/queue/actions', body }
  const result = readAnswer<QueueActionResultJson>(
    await callServer(serverAddress(flags), call),
    'action',
    'messages',
    'dry_run',
  )
  const count = `${result.messages} message${result.messages === 1 ? '' : 's'}`
  if (result.dry_run && result.messages > 0) {
    const target = pool === undefined ? '' : ` --to ${pool}`
    const command = `sternpost queue ${action}${filterWords(filter)}${target}`
    isConfirmed(flags, { document: result, text: `${count} would be ${done}`, command })
    return
  }
  printResult(flags, result, () => `${count} ${done}\n`)
}

interface QueueFilterFlags {
  pool?: string
  provider?: string
  route?: string
  recipientDomain?: string
  domain?: string
  ip?: string
  held?: boolean
  acceptedBefore?: string
  all?: boolean
}

/** What is left out does not restrict. */
interface QueueFilterBody {
  pool?: string | undefined
  provider?: string | undefined
  route?: string | undefined
  recipient_domain?: string | undefined
  domain?: string | undefined
  ip?: string | undefined
  held?: boolean | undefined
  /** Unix seconds. */
  accepted_before?: number | undefined
}

/** Which waiting messages a verb means: its flags, as the server takes them, and as they are typed. */
function withQueueFilter(verb: Command): Command {
  return verb
    .option('--pool <name>', 'in this pool')
    .option('--provider <isp>', 'to this mailbox provider, as events name it')
    .option('--route <name>', 'on this route, as `sternpost path list` names it')
    .option('--recipient-domain <domain>', 'to addresses of this domain')
    .option('--domain <domain>', 'from addresses of this sending domain')
    .option('--ip <address>', 'last tried from this IP')
    .option('--held', 'only those that are held')
    .option('--accepted-before <time>', 'accepted before this time, e.g. 2026-11-21T03:17:00Z')
    .option('--all', 'all of them; the same as no filter')
}

function queueFilter(flags: QueueFilterFlags): QueueFilterBody {
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
  const time = Date.parse(text)
  if (Number.isNaN(time)) throw misuse(`--accepted-before: "${text}" is no time; write 2026-11-21T03:17:00Z`)
  return Math.ceil(time / SECOND)
}

/** As they would be typed, each with a space before it. */
function filterWords({
  pool,
  provider,
  route,
  recipient_domain: to,
  domain,
  ip,
  held,
  accepted_before: time,
}: QueueFilterBody): string {
  const words = [
    ['--pool', pool],
    ['--provider', provider],
    ['--route', route],
    ['--recipient-domain', to],
    ['--domain', domain],
    ['--ip', ip],
  ].flatMap(([flag, value]) => (value === undefined ? [] : [` ${flag} ${value}`]))
  const before = time === undefined ? '' : ` --accepted-before ${new Date(time * SECOND).toISOString()}`
  return [...words, held === true ? ' --held' : '', before].join('')
}
