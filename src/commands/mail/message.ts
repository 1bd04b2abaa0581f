/**
 * `sternpost message`: one message, search, live view, and what can be done with one (http/README.md "Messages",
 * commands/README.md "The command line").
 */
import { Option, type Command } from 'commander'
import * as wire from '../../api/message.ts'
import { SECOND, systemClock, type Clock } from '../../base/clock.ts'
import { MESSAGE_STATES } from '../../mail/message.ts'
import { ask, askAll, askPages, type Query, type ApiPath } from '../shared/api-client.ts'
import { misuse, timeFlag } from '../shared/flag-values.ts'
import { printResult } from '../shared/print.ts'
import { columnsText } from '../shared/text.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import {
  pause,
  untilInterrupted,
  addVerb,
  LIMIT_FLAG,
  printFirst,
  type LimitFlags,
  type Given,
  type VerbFlags,
} from '../shared/verb.ts'
import { MESSAGE_COLUMNS, messageReport, type ShownMessage } from './message-report.ts'

type ListFlags = LimitFlags &
  Given<'recipient' | 'from' | 'domain' | 'state' | 'batch' | 'subject' | 'tag' | 'isp' | 'ip' | 'since' | 'until'>

type TailFlags = VerbFlags & Given<'state' | 'recipient' | 'isp'>

const EXAMPLE_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'

export function addMessageCommands(program: Command): void {
  const message = program.command('message').description('messages: look up, search, watch, cancel, try again')
  const shown = 'show a message, by its id or its Message-ID header, with its attempts and its timeline'
  addVerb(message, 'show <id>', shown, `${EXAMPLE_ID} --transcript`)
    .option('--transcript', 'with the SMTP dialogue of each attempt')
    .action(show)
  addVerb(message, 'list', 'search messages, newest first', '--state bounced --domain acme.com --since 24h')
    .option('--recipient <address>', 'sent to this address')
    .option('--from <address>', 'sent from this address')
    .option('--domain <domain>', 'sent from an address of this domain')
    .addOption(stateOption())
    .option('--batch <id>', 'of this batch')
    .option('--subject <words>', 'with these words in the subject')
    .option('--tag <key:value>', 'with this tag')
    .option('--isp <name>', 'to this mailbox provider, as events name it')
    .option('--ip <address>', 'last sent from this IP')
    .option('--since <time>', 'accepted since then: 2h, 2026-11-21, 2026-11-21T12:00')
    .option('--until <time>', 'accepted until then')
    .option(...LIMIT_FLAG)
    .action(list)
  const watched = 'print messages as they come and change their state, until interrupted'
  addVerb(message, 'tail', watched, '--state deferred')
    .addOption(stateOption())
    .option('--recipient <address>', 'sent to this address')
    .option('--isp <name>', 'to this mailbox provider, as events name it')
    .action(tail)
  addVerb(message, 'cancel <id>', 'withdraw a message that waits', EXAMPLE_ID).action(cancel)
  const retried = 'try a deferred message now, or send a bounced or expired one again as a new message'
  addVerb(message, 'retry <id>', retried, EXAMPLE_ID).action(retry)
}

function stateOption(): Option {
  return new Option('--state <state>', 'in this state').choices(MESSAGE_STATES)
}

export function pathOf(id: string): ApiPath {
  return `/v1/email/${encodeURIComponent(id)}`
}

async function show(id: string, flags: VerbFlags & { transcript?: boolean }): Promise<void> {
  const server = serverAddress(flags)
  const found = await ask(server, wire.messageSchema, `GET ${pathOf(id)}`)
  const shown: ShownMessage = { ...found, events: await timelineOf(server, id) }
  if (flags.transcript === true)
    shown.transcript = await askAll(server, wire.transcriptSchema, `${pathOf(id)}/transcript`)
  printResult(flags, shown, () => messageReport(shown))
}

export function timelineOf(server: ServerAddress, id: string): Promise<wire.EventJson[]> {
  return askAll(server, wire.eventSchema, `${pathOf(id)}/events`)
}

async function list(flags: ListFlags): Promise<void> {
  const { recipient, from, state, batch, subject, tag, isp, ip, since, until } = flags
  const [sinceTime, untilTime] = [readTime('--since', since), readTime('--until', until)]
  if (Number(sinceTime) > Number(untilTime)) throw misuse('--until lies before --since: no message can be meant')
  const query = { recipient, from, state, batch_id: batch, subject, tag, isp, ip, since: sinceTime, until: untilTime }
  await printFirst(flags, MESSAGE_COLUMNS, pagesFrom(flags, query), {
    whenNone: 'No such message.',
    whenMore: ': narrow the search, or raise --limit.',
  })
}

const readTime = (flag: string, text: string | undefined): string | undefined =>
  text === undefined ? undefined : timeFlag(flag, text)

/** The API searches for whole addresses. */
async function* pagesFrom(flags: ListFlags, query: Query): AsyncGenerator<wire.ListedMessageJson[]> {
  const end = flags.domain === undefined ? '' : `@${flags.domain.toLowerCase()}`
  for await (const page of askPages(flags, wire.listedMessageSchema, '/v1/email', query)) {
    yield page.filter(({ from }) => from.toLowerCase().endsWith(end))
  }
}

async function tail(flags: TailFlags): Promise<void> {
  const { state, recipient, isp } = flags
  const server = serverAddress(flags)
  await tailMessages({
    clock: systemClock,
    newest: async () => {
      const pages = askPages(server, wire.listedMessageSchema, '/v1/email', { state, recipient, isp })
      const { value } = await pages.next()
      return value ?? []
    },
    print: (message) => printResult(flags, message, () => columnsText(MESSAGE_COLUMNS, [message], false)),
    signal: untilInterrupted(),
  })
}

interface TailOptions {
  clock: Clock
  /** Newest first. */
  newest: () => Promise<wire.ListedMessageJson[]>
  print: (message: wire.ListedMessageJson) => void
  signal: AbortSignal
}

const LOOK_EVERY = 2 * SECOND
const SHOWN_AT_FIRST = 10

/**
 * The newest messages, looked at every two seconds; one is printed when it is new or its state changed, oldest first.
 * It begins with the last ten. Resolves when interrupted; rejects with what `newest` throws.
 *
 * Honest limit: it looks at the newest hundred. On a server that takes more than that in two seconds, or of messages
 * that wait while hundreds of others come, lines are left out; `message list` leaves nothing out.
 */
export async function tailMessages({ clock, newest, print, signal }: TailOptions): Promise<void> {
  let known = new Map<string, string>()
  let most = SHOWN_AT_FIRST
  while (!signal.aborted) {
    const messages = await newest()
    const changed = messages.filter(({ message_id: id, state }) => known.get(id) !== state)
    for (const message of changed.slice(0, most).toReversed()) print(message)
    known = new Map(messages.map(({ message_id: id, state }) => [id, state]))
    most = Number.POSITIVE_INFINITY
    await pause(clock, LOOK_EVERY, signal)
  }
}

async function cancel(id: string, flags: VerbFlags): Promise<void> {
  const canceled = await ask(flags, wire.canceledSchema, `POST ${pathOf(id)}/cancel`)
  printResult(flags, canceled, () => `${canceled.message_id} is ${canceled.state}\n`)
}

async function retry(id: string, flags: VerbFlags): Promise<void> {
  const retried = await ask(flags, wire.retriedSchema, `POST ${pathOf(id)}/retry`)
  const { message_id: tried, retry_of: original } = retried
  const done = original === null ? 'is tried now' : `is the new message in place of ${original}`
  printResult(flags, retried, () => `${tried} ${done}\n`)
}
