/**
 * `sternpost send`: sends one message, and with --wait follows it to its end (commands/README.md "The command line").
 *
 * Ends with 0 when it was accepted; with --wait only when it was delivered: 1 when it ended otherwise, 75 when the time
 * was over first.
 */
import { basename } from 'node:path'
import type { Command } from 'commander'
import { sendResultSchema, type SendBody } from '../../api/email.ts'
import { messageSchema, type EventJson, type MessageStateJson } from '../../api/message.ts'
import { SECOND, systemClock, type Clock } from '../../base/clock.ts'
import { EXIT } from '../../base/errors.ts'
import { ask, readAnswer, wholeAnswer } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { collect, durationFlag, fileFlag } from '../shared/flag-values.ts'
import { printNote, printResult } from '../shared/print.ts'
import { printable } from '../shared/text.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { addVerb, type Given, type VerbFlags } from '../shared/verb.ts'
import { eventLine } from './message-report.ts'
import { pathOf, timelineOf } from './message.ts'

type SendFlags = VerbFlags &
  Given<'text' | 'htmlFile' | 'pool' | 'wait'> & { to: string; from: string; subject: string; attach?: string[] }

/** http/README.md "Attachments": more would be refused by the server, after all of it was sent there. */
const MOST_MEBIBYTES = 10
const LOOK_EVERY = SECOND / 2
const DEFAULT_TEXT = 'A test message, sent with `sternpost send`.'

export function addSendCommand(program: Command): void {
  const example = '--to ada@example.net --from orders@acme.com --subject Hello --text Hi --wait 30s'
  addVerb(program, 'send', 'send one message', example)
    .requiredOption('--to <address>', 'the recipient')
    .requiredOption('--from <address>', 'the sender: an address of a verified domain')
    .option('--subject <subject>', 'the subject', 'Test message')
    .option('--text <text>', 'the plain text (default: a sentence, unless there is HTML)')
    .option('--html-file <file>', 'file with the HTML')
    .option('--attach <file>', 'file to attach, at most 10 MiB; repeat for several', collect)
    .option('--pool <name>', 'pool of pools.yaml that it leaves from')
    .option('--wait <duration>', 'follow it to its end, at most this long, e.g. 30s')
    .action(send)
}

async function send(flags: SendFlags): Promise<void> {
  const mostMilliseconds = flags.wait === undefined ? null : durationFlag('--wait', flags.wait)
  const body = messageOf(flags)
  const server = serverAddress(flags)
  const answer = await wholeAnswer(server, 'POST /v1/email/send', { body })
  const { success: _, ...sent } = readAnswer(sendResultSchema, answer)
  const id = sent.message_id
  if (mostMilliseconds === null) {
    printResult(flags, sent, () => `${id}${sent.status === undefined ? '' : `  ${sent.status}`}\n`)
    return printNote(flags, `Follow it with: ${commandText(flags, { verb: 'message show', arguments: [id] })}`)
  }
  // Should the lookup fail, the id is not lost.
  if (flags.json === true) printNote(flags, id)
  else process.stdout.write(`${id}\n`)
  const { state, events } = await follow(server, id, { mostMilliseconds, isQuiet: flags.json === true })
  printResult(flags, { ...sent, state, events }, () => `${state}\n`)
  const isOpen = OPEN_STATES.includes(state)
  process.exitCode = state === 'delivered' ? EXIT.done : isOpen ? EXIT.tryAgain : EXIT.failed
}

async function follow(
  server: ServerAddress,
  id: string,
  { mostMilliseconds, isQuiet }: { mostMilliseconds: number; isQuiet: boolean },
): Promise<{ state: MessageStateJson; events: EventJson[] }> {
  const events: EventJson[] = []
  const state = await followMessage({
    clock: systemClock,
    mostMilliseconds,
    lookEveryMilliseconds: LOOK_EVERY,
    stateOf: async () => (await ask(server, messageSchema, `GET ${pathOf(id)}`)).state,
    timelineOf: () => timelineOf(server, id),
    onEvent: (event) => {
      events.push(event)
      if (!isQuiet) process.stdout.write(`${printable(eventLine(event))}\n`)
    },
  })
  return { state, events }
}

interface FollowOptions {
  clock: Clock
  mostMilliseconds: number
  lookEveryMilliseconds: number
  stateOf: () => Promise<MessageStateJson>
  /** Oldest first. */
  timelineOf: () => Promise<EventJson[]>
  /** Called once for each. */
  onEvent: (event: EventJson) => void
}

/** States in which a message still waits for something (http/README.md "States of a message"). */
const OPEN_STATES: readonly MessageStateJson[] = ['scheduled', 'queued', 'sending', 'deferred']

/** The events of a message as they come, until it is final or the time is over. Gives the last state that was seen. */
export async function followMessage(options: FollowOptions): Promise<MessageStateJson> {
  const { clock, stateOf, timelineOf, onEvent } = options
  const end = clock.now() + options.mostMilliseconds
  const told = new Set<string>()
  for (;;) {
    // The state first: an event that comes after it is told in the next turn, and none is missed at the end.
    const state = await stateOf()
    for (const event of await timelineOf()) {
      if (!told.has(event.id)) onEvent(event)
      told.add(event.id)
    }
    const left = end - clock.now()
    if (!OPEN_STATES.includes(state) || left <= 0) return state
    await new Promise<void>((resolve) => clock.after(Math.min(options.lookEveryMilliseconds, left), resolve))
  }
}

function messageOf({ to, from, subject, text, htmlFile, attach = [], pool }: SendFlags): SendBody {
  const html = htmlFile === undefined ? undefined : givenFile('--html-file', htmlFile).toString('utf8')
  const attachments = attach.map((file) => ({
    name: basename(file),
    content: givenFile('--attach', file).toString('base64'),
  }))
  return {
    to,
    from,
    subject,
    html,
    text: text ?? (html === undefined ? DEFAULT_TEXT : undefined),
    attachments: attachments.length === 0 ? undefined : attachments,
    ip_pool: pool,
  }
}

const givenFile = (flag: string, file: string): Buffer => fileFlag(flag, file, MOST_MEBIBYTES)
