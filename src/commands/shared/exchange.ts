/**
 * One request to the server and its answer, over the admin socket or from elsewhere (`server-address.ts`).
 *
 * Throws ProcessExit: 69 when no server answers, 77 when the socket may not be opened or the key does not permit it, 75
 * when it is worth another try, 70 for a defect of the server, 1 for every other refusal, each with the server's own
 * sentence and details.
 */
import { request as plainRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { request as tlsRequest } from 'node:https'
import { MINUTE, SECOND } from '../../base/clock.ts'
import { errorCode, errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import type { OutputFlags } from './print.ts'
import { printable } from './text.ts'
import { serverAddress, shownAddress, type ServerAddress, type ServerFlags } from './server-address.ts'

/** Who is asked: a server, or the one that the flags of the verb mean. */
export type Asked = ServerAddress | (ServerFlags & OutputFlags)

const OK = 200
/** Far more than any answer of ours: content of a message, or a page of an export. */
const MOST_ANSWER_MEBIBYTES = 128

interface Exchange {
  method: string
  path: string
  headers: Record<string, string>
  body?: string | undefined
  /** How long the server may take to answer, in milliseconds; left out: a minute. */
  patience?: number | undefined
  /** Ends the exchange, and the wait for it. */
  signal?: AbortSignal
}

interface ServerAnswer {
  status: number
  type: string
  text: string
  /** Of X-Service-Warnings. */
  warnings: string[]
}

export async function exchange(asked: Asked, sent: Exchange): Promise<ServerAnswer> {
  const server = 'kind' in asked ? asked : serverAddress(asked)
  const incoming = await open(server, sent)
  try {
    return await received(incoming)
  } catch (thrown) {
    throw connectionProblem(server, thrown)
  }
}

/** An answer that goes on until one of both ends it, or nothing came for a minute. */
export async function streamFromServer(
  server: ServerAddress,
  sent: Pick<Exchange, 'path' | 'headers' | 'signal'>,
): Promise<IncomingMessage> {
  const incoming = await open(server, { method: 'GET', ...sent })
  if (incoming.statusCode === OK) return incoming
  successOf(await received(incoming))
  throw new ProcessExit(EXIT.internal, 'sternpost: the answer of the server is no stream.')
}

function open(server: ServerAddress, sent: Exchange): Promise<IncomingMessage> {
  const { method, path, headers, body, signal, patience = MINUTE } = sent
  const options: RequestOptions = { method, timeout: patience, ...(signal === undefined ? {} : { signal }) }
  return new Promise((resolve, reject) => {
    const outgoing =
      server.kind === 'socket'
        ? plainRequest({ ...options, socketPath: server.socketPath, path, headers: { ...headers, ...personHeader() } })
        : (server.url.protocol === 'https:' ? tlsRequest : plainRequest)(remoteUrl(server.url, path), {
            ...options,
            headers: { ...headers, Authorization: `Bearer ${server.apiKey}` },
          })
    outgoing.on('response', resolve)
    outgoing.on('timeout', () => outgoing.destroy(new Error(`no answer within ${patience / SECOND} s`)))
    outgoing.on('error', (error) => reject(connectionProblem(server, error)))
    outgoing.end(body)
  })
}

function remoteUrl(base: URL, path: string): URL {
  return new URL(base.pathname.replace(/\/$/, '') + path, base)
}

/** Who it is, for the log of the server. */
function personHeader(): Record<string, string> {
  const person = process.env['SUDO_USER'] ?? ''
  return person === '' ? {} : { 'X-Sternpost-User': person }
}

async function received(incoming: IncomingMessage): Promise<ServerAnswer> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of incoming) {
    pieces.push(piece)
    bytes += piece.length
    if (bytes > MOST_ANSWER_MEBIBYTES * 2 ** 20)
      throw new Error(`more than ${MOST_ANSWER_MEBIBYTES} MiB come from there`)
  }
  return {
    status: incoming.statusCode ?? 0,
    type: incoming.headers['content-type'] ?? '',
    text: Buffer.concat(pieces).toString('utf8'),
    warnings: warningsIn(String(incoming.headers['x-service-warnings'] ?? '')),
  }
}

/** With commas between; a comma in a text, and what is not ASCII, is escaped as `\u002c`. */
function warningsIn(header: string): string[] {
  const unescape = (text: string): string =>
    text.replace(/\\u([0-9a-f]{4})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
  return header === '' ? [] : header.split(',').map(unescape)
}

function connectionProblem(server: ServerAddress, thrown: unknown): ProcessExit {
  const where = shownAddress(server)
  if (server.kind === 'socket' && ['EACCES', 'EPERM'].includes(errorCode(thrown))) {
    const fix = 'run it as root or as a member of the group sternpost'
    return new ProcessExit(EXIT.notAllowed, `sternpost: ${where} may not be opened: ${fix}.`, { cause: thrown })
  }
  const fix =
    server.kind === 'socket'
      ? 'start it with `systemctl start sternpost` (installed; `journalctl -u sternpost` says why it ended) or ' +
        '`sternpost serve`, or name its folder with --config'
      : 'check --url, and that it can be reached from here'
  // A name with several addresses fails with one error for each, and no text of its own.
  const cause = errorText(thrown) === '' ? errorCode(thrown) : errorText(thrown)
  const text = `sternpost: no server answers at ${where} (${cause}). Fix: ${fix}.`
  return new ProcessExit(EXIT.unreachable, text, { cause: thrown })
}

export type Success = Record<string, unknown>

export function successOf({ status, text }: ServerAnswer, whenMissing?: string): Success {
  const answer = parseAnswer(status, text)
  if (isPlainObject(answer) && answer['success'] === true) return answer
  const error = isPlainObject(answer) && isPlainObject(answer['error']) ? answer['error'] : {}
  const part = (name: string): string => String(error[name] ?? '')
  const [code, message, details] = [part('code'), part('message'), part('details')]
  const known = Object.hasOwn(REFUSALS, code) ? REFUSALS[code] : undefined
  const advice = code === 'not_found' && whenMissing !== undefined ? whenMissing : known?.fix
  const sentence = message === '' ? 'The server refused without a reason.' : message
  const said = details === '' ? sentence : `${sentence} ${details}`
  const fix = advice === undefined ? '' : `${said.endsWith('.') ? '' : '.'} Fix: ${advice}.`
  // The server's own code is that of the cause.
  throw new ProcessExit(known?.exit ?? EXIT.failed, `sternpost: ${printable(said + fix)}`, { cause: { code } })
}

function parseAnswer(status: number, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (thrown) {
    if (GATEWAY_STATUSES.includes(status)) {
      const text = `sternpost: a proxy answers for the server, which it does not reach (status ${status})`
      throw new ProcessExit(EXIT.unreachable, `${text}. Fix: see that the server runs.`, { cause: thrown })
    }
    const problem = `sternpost: the answer of the server (status ${status}) is no JSON. Fix: check --url.`
    throw new ProcessExit(EXIT.internal, problem, { cause: thrown })
  }
}

/** Of a proxy whose server is not there, such as one that starts anew (RFC 9110 §15.6.3 to §15.6.5). */
const GATEWAY_STATUSES: readonly number[] = [502, 503, 504]

/** What a refusal ends with beside 1, and what to do about it. */
const REFUSALS: Readonly<Record<string, { exit: number; fix: string }>> = {
  unauthorized: { exit: EXIT.notAllowed, fix: 'give the whole key with --api-key' },
  forbidden: { exit: EXIT.notAllowed, fix: 'use a key that may: sternpost key create --name … --scope …' },
  not_found: { exit: EXIT.failed, fix: 'the verb `list` shows what there is' },
  domain_not_verified: { exit: EXIT.failed, fix: '`sternpost domain list` shows which can send' },
  rate_limited: { exit: EXIT.tryAgain, fix: 'try again in a few seconds' },
  unavailable: { exit: EXIT.tryAgain, fix: 'try again; the log of the server says more' },
  internal_error: { exit: EXIT.internal, fix: 'the log of the server says more' },
}
