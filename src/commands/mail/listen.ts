/**
 * `sternpost listen`: posts the events of the server, one after the other, to a developer's machine without a public
 * address, signed with a secret it prints (commands/README.md "sternpost listen"). Ends with 0 when interrupted; with
 * what the server answers when the first connection fails, or when it refuses a later one.
 */
import { randomBytes } from 'node:crypto'
import type { Command } from 'commander'
import { SECOND, systemClock } from '../../base/clock.ts'
import { newIdentifier } from '../../base/identifier.ts'
import { packageVersion } from '../../base/package-version.ts'
import { createGuardedRequest, type GuardedRequest } from '../../network/guarded-request.ts'
import { deliveryHeaders } from '../../webhooks/post-event.ts'
import { withQuery } from '../shared/api-client.ts'
import { streamFromServer } from '../shared/exchange.ts'
import { collect, misuse } from '../shared/flag-values.ts'
import { printNote, printResult } from '../shared/print.ts'
import { printable } from '../shared/text.ts'
import { serverAddress } from '../shared/server-address.ts'
import { untilInterrupted, addVerb, type Given, type VerbFlags } from '../shared/verb.ts'
import { followStream, type StreamEvent } from './follow-stream.ts'

type ListenFlags = VerbFlags & Given<'events' | 'secret'> & { forwardTo: string; header?: string[] }

const REPLAY_KEY = 'r'
/** As the server generates one: 43 characters of base64url. */
const SECRET_BYTES = 32

export function addListenCommand(program: Command): void {
  const forwarded = 'forward events to a URL on this machine, until interrupted; the key r posts the last one again'
  const example = '--forward-to http://localhost:3000/hooks --events email.bounced,email.complained'
  addVerb(program, 'listen', forwarded, example)
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
  const target = { url: forwardTo, secret, headers, post: guardedRequest.post }
  const signal = untilInterrupted()
  let last: StreamEvent | null = null
  const forwardAndPrint = async (event: StreamEvent): Promise<void> => {
    last = event
    const forwarded = await forward(event, target)
    printResult(flags, forwarded, () => lineOf(forwarded))
  }
  const stopKeys = onKey(REPLAY_KEY, () => void (last !== null && forwardAndPrint(last)))
  const path = withQuery('/v1/webhooks/stream', { events: flags.events })
  const begun = `Forwarding to ${printable(forwardTo)}, signed with ${printable(secret)}\n`
  try {
    await followStream({
      clock: systemClock,
      signal,
      open(lastId) {
        const place: Record<string, string> = lastId === '' ? {} : { 'Last-Event-ID': lastId }
        return streamFromServer(server, { path, headers: { Accept: 'text/event-stream', ...place }, signal })
      },
      onOpen: () => printResult(flags, { forward_to: forwardTo, secret }, () => begun),
      onEvent: forwardAndPrint,
      onBroken: (reason, wait) =>
        printNote(flags, `The stream ended: ${printable(reason)}; again in ${wait / SECOND} s`),
    })
  } finally {
    stopKeys()
    await guardedRequest.close()
  }
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

interface ForwardTarget {
  url: string
  secret: string
  /** Sent along; none of them replaces one of ours. */
  headers: Record<string, string>
  post: GuardedRequest['post']
}

type ForwardedEvent = Awaited<ReturnType<typeof forward>>

/** http/README.md "Events". */
const ANSWER_TIMEOUT = 10 * SECOND

/**
 * Posts an event of the stream as the server would post it to an endpoint (webhooks/README.md "Signature"). Never
 * throws: what goes wrong is in the result.
 */
async function forward({ id, kind, data: body }: StreamEvent, target: ForwardTarget) {
  const { url, secret, headers, post } = target
  const at = Date.now()
  const delivery = { body, eventId: id, id: newIdentifier('whd', at), attempts: 0 }
  const ours = deliveryHeaders(delivery, { secret, nextSecret: null }, at)
  const result = await post({
    url,
    body,
    timeoutMilliseconds: ANSWER_TIMEOUT,
    headers: { ...headers, ...ours, 'User-Agent': `Sternpost/${packageVersion()}` },
  })
  const isAnswered = result.kind === 'answered'
  return {
    event: kind,
    message_id: messageIdIn(body),
    event_id: id,
    /** null: no answer. */
    status: isAnswered ? result.status : null,
    duration_ms: Math.max(0, Date.now() - at),
    error: isAnswered ? null : result.reason,
  }
}

/** null: it is about something else, or the body is no JSON. */
function messageIdIn(body: string): string | null {
  try {
    const value: unknown = JSON.parse(body)
    const data: unknown = typeof value === 'object' && value !== null && 'data' in value ? value.data : null
    if (typeof data === 'object' && data !== null && 'message_id' in data) return String(data.message_id)
    return null
  } catch {
    // It is posted all the same: the receiver may know better.
    return null
  }
}
