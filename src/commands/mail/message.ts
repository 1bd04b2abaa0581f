/**
 * `sternpost message`: one message, search, live view, and what can be done with one (http/README.md "Messages",
 * commands/README.md "The command line").
 */
import type { EventJson, ListedMessageJson, MessageJson, TranscriptJson } from '../../api/message.ts'
import { Option, type Command } from 'commander'
import { systemClock } from '../../base/clock.ts'
import { MESSAGE_STATES } from '../../mail/message.ts'
import { callServer, listFromServer, pagesFromServer } from '../shared/api-client.ts'
import { countFlag, timeFlag } from '../shared/flag-values.ts'
import { MESSAGE_HEADS, messageReport, messageRow, type ShownMessage } from './message-report.ts'
import { tailMessages } from './message-tail.ts'
import { isTerminal, printNote, printResult, tableText } from '../shared/print.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { untilInterrupted } from '../shared/until-interrupted.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'

interface ListFlags extends VerbFlags {
  recipient?: string
  from?: string
  domain?: string
  state?: string
  batch?: string
  tag?: string
  isp?: string
  ip?: string
  since?: string
  until?: string
  limit: string
}

interface TailFlags extends VerbFlags {
  state?: string
  recipient?: string
  isp?: string
}

const EXAMPLE_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'

export function addMessageCommands(program: Command): void {
  const message = program.command('message').description('messages: look up, search, watch, cancel, try again')
  addVerb(message, {
    words: 'show <id>',
    description: 'show a message with its attempts and its timeline',
    example: `sternpost message show ${EXAMPLE_ID} --transcript`,
  })
    .option('--transcript', 'with the SMTP dialogue of each attempt')
    .action(show)
  addVerb(message, {
    words: 'list',
    description: 'search messages, newest first',
    example: 'sternpost message list --state bounced --domain acme.com --since 24h',
  })
    .option('--recipient <address>', 'sent to this address')
    .option('--from <address>', 'sent from this address')
    .option('--domain <domain>', 'sent from an address of this domain')
    .addOption(stateOption())
    .option('--batch <id>', 'of this batch')
    .option('--tag <key:value>', 'with this tag')
    .option('--isp <name>', 'to this mailbox provider, as events name it')
    .option('--ip <address>', 'last sent from this IP')
    .option('--since <time>', 'accepted since then: 2h, 2026-11-21, 2026-11-21T12:00')
    .option('--until <time>', 'accepted until then')
    .option('--limit <count>', 'at most so many', '50')
    .action(list)
  addVerb(message, {
    words: 'tail',
    description: 'print messages as they come and change their state, until interrupted',
    example: 'sternpost message tail --state deferred',
  })
    .addOption(stateOption())
    .option('--recipient <address>', 'sent to this address')
    .option('--isp <name>', 'to this mailbox provider, as events name it')
    .action(tail)
  addActions(message)
}

function addActions(message: Command): void {
  addVerb(message, {
    words: 'cancel <id>',
    description: 'withdraw a message that waits',
    example: `sternpost message cancel ${EXAMPLE_ID}`,
  }).action(cancel)
  addVerb(message, {
    words: 'retry <id>',
    description: 'try a deferred message now, or send a bounced or expired one again as a new message',
    example: `sternpost message retry ${EXAMPLE_ID}`,
  }).action(retry)
}

function stateOption(): Option {
  return new Option('--state <state>', 'in this state').choices(MESSAGE_STATES)
}

async function show(id: string, flags: VerbFlags & { transcript?: boolean }): Promise<void> {
  const server = serverAddress(flags)
  const found = await callServer(server, { method: 'GET', path: pathOf(id) })
  const shown: ShownMessage = {
    ...readAnswer<MessageJson>(found, 'message_id', 'state', 'attempts'),
    events: await timelineOf(server, id),
  }
  if (flags.transcript === true) shown.transcript = await transcriptOf(server, id)
  printResult(flags, shown, () => messageReport(shown))
}

async function list(flags: ListFlags): Promise<void> {
  const { recipient, from, state, batch, tag, isp, ip, since, until } = flags
  const query = {
    recipient,
    from,
    state,
    batch_id: batch,
    tag,
    isp,
    ip,
    since: since === undefined ? undefined : timeFlag('--since', since),
    until: until === undefined ? undefined : timeFlag('--until', until),
  }
  const most = countFlag('--limit', flags.limit)
  const found: ListedMessageJson[] = []
  for await (const page of pagesFromServer(serverAddress(flags), '/v1/email', query)) {
    const messages = page.map((entry) => readAnswer<ListedMessageJson>(entry, 'message_id', 'state', 'from'))
    found.push(...messages.filter((message) => flags.domain === undefined || isFrom(message, flags.domain)))
    if (found.length > most) break
  }
  const shown = found.slice(0, most)
  printResult(flags, shown, () => tableText(MESSAGE_HEADS, shown.map(messageRow), isTerminal()))
  if (found.length === 0) printNote(flags, 'No such message.')
  if (found.length > most) printNote(flags, `There are more than these ${most}: narrow the search, or raise --limit.`)
}

/** The API searches for whole addresses. */
function isFrom({ from }: ListedMessageJson, domain: string): boolean {
  return from.toLowerCase().endsWith(`@${domain.toLowerCase()}`)
}

async function tail(flags: TailFlags): Promise<void> {
  const { state, recipient, isp } = flags
  const server = serverAddress(flags)
  await tailMessages({
    clock: systemClock,
    query: { state, recipient, isp },
    newest: async (query) => {
      const path = '/v1/email'
      for await (const page of pagesFromServer(server, path, query)) {
        return page.map((entry) => readAnswer<ListedMessageJson>(entry, 'message_id', 'state', 'from'))
      }
      return []
    },
    print: (message) => printResult(flags, message, () => tableText([], [messageRow(message)], false)),
    signal: untilInterrupted(),
  })
}

async function cancel(id: string, flags: VerbFlags): Promise<void> {
  const answer = await callServer(serverAddress(flags), { method: 'POST', path: `${pathOf(id)}/cancel`, body: {} })
  const canceled = readAnswer<{ message_id: string; state: string }>(answer, 'message_id', 'state')
  printResult(flags, canceled, () => `${canceled.message_id} is ${canceled.state}\n`)
}

async function retry(id: string, flags: VerbFlags): Promise<void> {
  const answer = await callServer(serverAddress(flags), { method: 'POST', path: `${pathOf(id)}/retry`, body: {} })
  const retried = readAnswer<{ message_id: string; retry_of: string | null }>(answer, 'message_id', 'retry_of')
  printResult(flags, retried, () =>
    retried.retry_of === null
      ? `${retried.message_id} is tried now\n`
      : `${retried.message_id} is the new message in place of ${retried.retry_of}\n`,
  )
}

export async function timelineOf(server: ServerAddress, id: string): Promise<EventJson[]> {
  const events = await listFromServer(server, `${pathOf(id)}/events`)
  return events.map((event) => readAnswer<EventJson>(event, 'id', 'event', 'timestamp', 'data'))
}

async function transcriptOf(server: ServerAddress, id: string): Promise<TranscriptJson[]> {
  const transcript = await listFromServer(server, `${pathOf(id)}/transcript`)
  return transcript.map((attempt) => readAnswer<TranscriptJson>(attempt, 'n', 'dialogue'))
}

export function pathOf(id: string): string {
  return `/v1/email/${encodeURIComponent(id)}`
}
