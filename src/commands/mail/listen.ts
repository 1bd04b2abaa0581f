/**
 * `sternpost listen`: brings events to a developer's machine without a public address (commands/README.md "sternpost
 * listen").
 *
 * Reads the event stream of the server and posts each event, in the exact wire format and signed with a secret it
 * prints, one after the other. A broken connection is made again and goes on behind the last event that was posted.
 * Nothing is tried twice, and nothing of it counts on the server. Ends with 0 when interrupted; with what the server
 * answers when the first connection fails, or when it refuses a later one.
 */
import { randomBytes } from 'node:crypto'
import type { Command } from 'commander'
import { SECOND, systemClock } from '../../base/clock.ts'
import { createGuardedRequest } from '../../network/guarded-request.ts'
import { streamFromServer, withQuery } from '../shared/api-client.ts'
import type { StreamEvent } from './event-stream.ts'
import { misuse } from '../shared/flag-values.ts'
import { followStream } from './follow-stream.ts'
import { createForwarder, type ForwardedEvent } from './forward-event.ts'
import { printable, printNote, printResult } from '../shared/print.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { collect } from '../shared/shared-options.ts'
import { untilInterrupted } from '../shared/until-interrupted.ts'
import { addVerb, type VerbFlags } from '../shared/verb.ts'

interface ListenFlags extends VerbFlags {
  forwardTo: string
  events?: string
  header?: string[]
  secret?: string
}

const REPLAY_KEY = 'r'
/** As the server generates one: 43 characters of base64url. */
const SECRET_BYTES = 32

export function addListenCommand(program: Command): void {
  addVerb(program, {
    words: 'listen',
    description: 'forward events to a URL on this machine, until interrupted; the key r posts the last one again',
    example: 'sternpost listen --forward-to http://localhost:3000/hooks --events email.bounced,email.complained',
  })
    .requiredOption('--forward-to <url>', 'where to post events, http or https')
    .option('--events <kinds>', 'kinds, with commas between them (default: the five standard kinds)')
    .option('--header <name:value>', 'header to send along; repeat for several', collect)
    .option('--secret <secret>', 'secret to sign with (default: one is generated)')
    .action(listen)
}

async function listen(flags: ListenFlags): Promise<void> {
  const { forwardTo, secret = `whsec_${randomBytes(SECRET_BYTES).toString('base64url')}` } = flags
  const headers = Object.fromEntries((flags.header ?? []).map(readHeader))
  const server = serverAddress(flags)
  const guardedRequest = createGuardedRequest({ allowPrivateAddresses: true, allowHttp: true })
  const problem = await guardedRequest.check(forwardTo)
  if (problem !== undefined) throw misuse(`--forward-to: ${problem}`)
  const forward = createForwarder({ url: forwardTo, secret, headers, post: guardedRequest.post, now: Date.now })
  const signal = untilInterrupted()
  let last: StreamEvent | null = null
  const forwardAndPrint = async (event: StreamEvent): Promise<void> => {
    last = event
    const forwarded = await forward(event)
    printResult(flags, forwarded, () => lineOf(forwarded))
  }
  const stopKeys = onKey(REPLAY_KEY, () => void (last !== null && forwardAndPrint(last)))
  try {
    await followStream({
      clock: systemClock,
      signal,
      open: (lastId) => openStream(server, { kinds: flags.events, lastId, signal }),
      onOpen: () =>
        printResult(
          flags,
          { forward_to: forwardTo, secret },
          () => `Forwarding to ${printable(forwardTo)}, signed with ${printable(secret)}\n`,
        ),
      onEvent: forwardAndPrint,
      onBroken: (reason, wait) =>
        printNote(flags, `The stream ended: ${printable(reason)}; again in ${wait / SECOND} s`),
    })
  } finally {
    stopKeys()
    await guardedRequest.close()
  }
}

interface StreamPlace {
  kinds: string | undefined
  lastId: string
  signal: AbortSignal
}

function openStream(server: ServerAddress, { kinds, lastId, signal }: StreamPlace): Promise<AsyncIterable<Uint8Array>> {
  const headers: Record<string, string> = { Accept: 'text/event-stream' }
  if (lastId !== '') headers['Last-Event-ID'] = lastId
  return streamFromServer(server, { path: withQuery('/v1/webhooks/stream', { events: kinds }), headers, signal })
}

function readHeader(text: string): [string, string] {
  // A name as RFC 9110 §5.6.2 has it, a colon, and a value without control characters.
  const [, name, value] = /^([!#$%&'*+.^`|~\w-]+):\s*(\P{Cc}*)$/u.exec(text) ?? []
  if (name === undefined || value === undefined) throw misuse(`--header: "${printable(text)}" is not name:value`)
  return [name, value]
}

function lineOf({ event, message_id: messageId, status, duration_ms: duration, error }: ForwardedEvent): string {
  const outcome = status === null ? `no answer (${error})` : String(status)
  return `${printable([event, messageId ?? '-', outcome, `${duration} ms`].join('  '))}\n`
}

const CONTROL_C = '\u0003'

/**
 * A single key, without the enter key; nothing where standard input is no terminal. Gives the function that ends it and
 * leaves the terminal as it was.
 */
function onKey(key: string, action: () => void): () => void {
  const { stdin } = process
  if (!stdin.isTTY) return () => undefined
  const listen = (bytes: Buffer): void => {
    for (const pressed of bytes.toString('utf8')) {
      if (pressed === key) action()
      // In this mode the terminal does not make a signal of it.
      if (pressed === CONTROL_C) process.kill(process.pid, 'SIGINT')
    }
  }
  stdin.setRawMode(true)
  stdin.on('data', listen)
  return () => {
    stdin.off('data', listen)
    stdin.setRawMode(false)
    stdin.pause()
  }
}
