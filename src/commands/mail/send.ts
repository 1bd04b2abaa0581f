/**
 * `sternpost send`: sends one message, and with --wait follows it to its end (commands/README.md "The command line").
 *
 * Ends with 0 when it was accepted; with --wait only when it was delivered: 1 when it ended otherwise, 75 when the time
 * was over first.
 */
import type { EventJson, MessageJson } from '../../api/message.ts'
import { readFileSync, statSync } from 'node:fs'
import { basename } from 'node:path'
import type { Command } from 'commander'
import { SECOND, systemClock } from '../../base/clock.ts'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import { callServer, wholeAnswer } from '../shared/api-client.ts'
import { durationFlag, misuse } from '../shared/flag-values.ts'
import { followMessage } from './follow-message.ts'
import { eventLine } from './message-report.ts'
import { pathOf, timelineOf } from './message.ts'
import { printable, printNote, printResult } from '../shared/print.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { collect } from '../shared/shared-options.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'

interface SendFlags extends VerbFlags {
  to: string
  from: string
  subject: string
  text?: string
  htmlFile?: string
  attach?: string[]
  pool?: string
  wait?: string
}

interface Sent {
  message_id: string
  timestamp: number
  status?: string
  reason?: string
}

/** http/README.md "Attachments": more would be refused by the server, after all of it was sent there. */
const MOST_ATTACHMENT_BYTES = 10 * 1024 * 1024
const LOOK_EVERY = SECOND / 2
const DEFAULT_TEXT = 'A test message, sent with `sternpost send`.'

export function addSendCommand(program: Command): void {
  addVerb(program, {
    words: 'send',
    description: 'send one message',
    example: 'sternpost send --to ada@example.net --from orders@acme.com --subject Hello --text Hi --wait 30s',
  })
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
  const { success: _, ...answer } = await wholeAnswer(server, { method: 'POST', path: '/v1/email/send', body })
  const sent = readAnswer<Sent>(answer, 'message_id', 'timestamp')
  if (mostMilliseconds === null) {
    printResult(flags, sent, () => `${sent.message_id}${sent.status === undefined ? '' : `  ${sent.status}`}\n`)
    printNote(flags, `Follow it with: sternpost message show ${sent.message_id}`)
    return
  }
  await follow(server, flags, { sent, mostMilliseconds })
}

interface Followed {
  sent: Sent
  mostMilliseconds: number
}

async function follow(server: ServerAddress, flags: SendFlags, { sent, mostMilliseconds }: Followed): Promise<void> {
  const { message_id: id } = sent
  // Should the lookup fail, the id is not lost.
  if (flags.json === true) printNote(flags, id)
  else process.stdout.write(`${id}\n`)
  const events: EventJson[] = []
  const state = await followMessage({
    clock: systemClock,
    mostMilliseconds,
    lookEveryMilliseconds: LOOK_EVERY,
    stateOf: async () => (await messageOfId(server, id)).state,
    timelineOf: () => timelineOf(server, id),
    onEvent: (event) => {
      events.push(event)
      if (flags.json !== true) process.stdout.write(`${printable(eventLine(event))}\n`)
    },
  })
  printResult(flags, { ...sent, state, events }, () => `${state}\n`)
  process.exitCode = exitCodeOf(state)
}

function exitCodeOf(state: MessageJson['state']): number {
  if (state === 'delivered') return EXIT.done
  return ['bounced', 'expired', 'canceled', 'suppressed'].includes(state) ? EXIT.failed : EXIT.tryAgain
}

async function messageOfId(server: ServerAddress, id: string): Promise<MessageJson> {
  return readAnswer<MessageJson>(await callServer(server, { method: 'GET', path: pathOf(id) }), 'message_id', 'state')
}

function messageOf({ to, from, subject, text, htmlFile, attach = [], pool }: SendFlags): object {
  const html = htmlFile === undefined ? undefined : readGiven('--html-file', htmlFile).toString('utf8')
  return {
    to,
    from,
    subject,
    html,
    text: text ?? (html === undefined ? DEFAULT_TEXT : undefined),
    attachments: attach.length === 0 ? undefined : attach.map(attachmentOf),
    ip_pool: pool,
  }
}

function attachmentOf(file: string): { name: string; content: string } {
  return { name: basename(file), content: readGiven('--attach', file).toString('base64') }
}

function readGiven(flag: string, file: string): Buffer {
  try {
    const { size } = statSync(file)
    if (size <= MOST_ATTACHMENT_BYTES) return readFileSync(file)
  } catch (cause) {
    throw new ProcessExit(EXIT.disk, `sternpost: ${flag}: ${errorText(cause)}`, { cause })
  }
  throw misuse(`${flag}: ${file} has more than 10 MiB, the most that can be sent`)
}
