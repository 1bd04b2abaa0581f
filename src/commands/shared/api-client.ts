/**
 * The HTTP API as the verbs use it, over the admin socket or from elsewhere (`server-address.ts`).
 *
 * Throws ProcessExit: 69 when no server answers, 77 when the socket may not be opened or the key does not permit it, 75
 * when it is worth another try, 70 for a defect of the server, 1 for every other refusal, each with the server's own
 * sentence and details.
 */
import { request as plainRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { request as tlsRequest } from 'node:https'
import { MINUTE, SECOND } from '../../base/clock.ts'
import { errorCode, errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import { printable } from './print.ts'
import { shownAddress, type ServerAddress } from './server-address.ts'

export interface ApiCall {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** From the version on: `/v1/domains`. */
  path: string
  /** Sent as JSON. */
  body?: unknown
  /** What to do when there is no such thing; left out: to list what there is. */
  whenMissing?: string
  /** How long the server may take to answer, in milliseconds; left out: a minute. */
  patience?: number
}

/** Parameters behind the question mark; what is undefined is left out. */
export type Query = Record<string, string | undefined>

/** The most entries of a page (http/README.md "Conventions"). */
const PAGE_ENTRIES = 100
const OK = 200
const JSON_TYPE = 'application/json'

/** The `data` of the server's answer. */
export async function callServer(server: ServerAddress, call: ApiCall): Promise<unknown> {
  return (await wholeAnswer(server, call))['data']
}

/** The whole answer, for those that have no `data`. */
export async function wholeAnswer(server: ServerAddress, call: ApiCall): Promise<Success> {
  const { method, path, body, whenMissing, patience } = call
  const text = body === undefined ? undefined : JSON.stringify(body)
  const headers = { 'Content-Type': JSON_TYPE }
  const answer = await exchange(server, { method, path, headers, body: text, patience })
  return successOf(answer, whenMissing)
}

/** null: the key may not know. */
export async function ifPermitted<Value>(ask: () => Promise<Value>): Promise<Value | null> {
  try {
    return await ask()
  } catch (thrown) {
    if (thrown instanceof ProcessExit && errorCode(thrown.cause) === 'forbidden') return null
    throw thrown
  }
}

export async function sendCsv(server: ServerAddress, path: string, csv: string): Promise<unknown> {
  const headers = { 'Content-Type': 'text/csv; charset=utf-8' }
  return successOf(await exchange(server, { method: 'POST', path, headers, body: csv }))['data']
}

/** An answer that is text in place of JSON. */
export async function textFromServer(server: ServerAddress, path: string): Promise<string> {
  const answer = await exchange(server, { method: 'GET', path, headers: {}, body: undefined })
  return answer.type.startsWith('text/plain') ? answer.text : String(successOf(answer)['data'])
}

/** The pages of a list, as they are asked for. */
export async function* pagesFromServer(
  server: ServerAddress,
  path: string,
  query: Query = {},
): AsyncGenerator<unknown[]> {
  let after: string | undefined
  do {
    const pagePath = withQuery(path, { limit: String(PAGE_ENTRIES), ...query, after })
    const { data, next_cursor: next } = await wholeAnswer(server, { method: 'GET', path: pagePath })
    if (Array.isArray(data)) yield data
    after = typeof next === 'string' ? next : undefined
  } while (after !== undefined)
}

/** All entries of a list. */
export async function listFromServer(server: ServerAddress, path: string, query: Query = {}): Promise<unknown[]> {
  const entries: unknown[] = []
  for await (const page of pagesFromServer(server, path, query)) entries.push(...page)
  return entries
}

export function withQuery(path: string, query: Query): string {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.set(name, value)
  return parameters.size === 0 ? path : `${path}?${parameters}`
}

interface StreamCall {
  path: string
  headers: Record<string, string>
  /** Ends the stream, and the wait for it. */
  signal: AbortSignal
}

/** An answer that goes on until one of both ends it, or nothing came for a minute. */
export async function streamFromServer(
  server: ServerAddress,
  { path, headers, signal }: StreamCall,
): Promise<IncomingMessage> {
  const incoming = await open(server, { method: 'GET', path, headers, body: undefined, signal })
  if (incoming.statusCode === OK) return incoming
  successOf(await readAnswer(incoming))
  throw new ProcessExit(EXIT.internal, 'sternpost: the answer of the server is no stream.')
}

interface Exchange {
  method: string
  path: string
  headers: Record<string, string>
  body: string | undefined
  patience?: number | undefined
  signal?: AbortSignal
}

interface ServerAnswer {
  status: number
  type: string
  text: string
}

async function exchange(server: ServerAddress, asked: Exchange): Promise<ServerAnswer> {
  const incoming = await open(server, asked)
  try {
    return await readAnswer(incoming)
  } catch (thrown) {
    throw connectionProblem(server, thrown)
  }
}

function open(server: ServerAddress, asked: Exchange): Promise<IncomingMessage> {
  const { method, path, headers, body, signal, patience = MINUTE } = asked
  const options: RequestOptions = { method, timeout: patience, ...(signal === undefined ? {} : { signal }) }
  return new Promise((resolve, reject) => {
    const outgoing =
      server.kind === 'socket'
        ? plainRequest({ ...options, socketPath: server.socketPath, path, headers: { ...headers, ...personHeader() } })
        : remoteRequest(server.url)(new URL(server.url.pathname.replace(/\/$/, '') + path, server.url), {
            ...options,
            headers: { ...headers, Authorization: `Bearer ${server.apiKey}` },
          })
    outgoing.on('response', resolve)
    outgoing.on('timeout', () => outgoing.destroy(new Error(`no answer within ${patience / SECOND} s`)))
    outgoing.on('error', (error) => reject(connectionProblem(server, error)))
    outgoing.end(body)
  })
}

function remoteRequest({ protocol }: URL): typeof tlsRequest {
  return protocol === 'https:' ? tlsRequest : plainRequest
}

/** Who it is, for the log of the server. */
function personHeader(): Record<string, string> {
  const person = process.env['SUDO_USER'] ?? ''
  return person === '' ? {} : { 'X-Sternpost-User': person }
}

async function readAnswer(incoming: IncomingMessage): Promise<ServerAnswer> {
  const pieces: Buffer[] = []
  for await (const piece of incoming) pieces.push(piece)
  return {
    status: incoming.statusCode ?? 0,
    type: incoming.headers['content-type'] ?? '',
    text: Buffer.concat(pieces).toString('utf8'),
  }
}

function connectionProblem(server: ServerAddress, thrown: unknown): ProcessExit {
  const where = shownAddress(server)
  if (server.kind === 'socket' && ['EACCES', 'EPERM'].includes(errorCode(thrown))) {
    const fix = 'run it as root or as a member of the group sternpost'
    return new ProcessExit(EXIT.notAllowed, `sternpost: ${where} may not be opened: ${fix}.`, { cause: thrown })
  }
  const fix =
    server.kind === 'socket'
      ? 'start it with `sternpost serve`, or name its folder with --config'
      : 'check --url, and that it can be reached from here'
  // A name with several addresses fails with one error for each, and no text of its own.
  const cause = errorText(thrown) === '' ? errorCode(thrown) : errorText(thrown)
  const text = `sternpost: no server answers at ${where} (${cause}). Fix: ${fix}.`
  return new ProcessExit(EXIT.unreachable, text, { cause: thrown })
}

type Success = Record<string, unknown>

function successOf({ status, text }: ServerAnswer, whenMissing?: string): Success {
  const answer = parseAnswer(status, text)
  if (isObject(answer) && answer['success'] === true) return answer
  const error = isObject(answer) && isObject(answer['error']) ? answer['error'] : {}
  const part = (name: string): string => String(error[name] ?? '')
  throw refusal({ code: part('code'), message: part('message'), details: part('details') }, whenMissing)
}

function parseAnswer(status: number, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (thrown) {
    const problem = `sternpost: the answer of the server (status ${status}) is no JSON. Fix: check --url.`
    throw new ProcessExit(EXIT.internal, problem, { cause: thrown })
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

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

/** The server's own code is that of the cause. */
function refusal(
  { code, message, details }: { code: string; message: string; details: string },
  whenMissing: string | undefined,
): ProcessExit {
  const known = Object.hasOwn(REFUSALS, code) ? REFUSALS[code] : undefined
  const advice = code === 'not_found' && whenMissing !== undefined ? whenMissing : known?.fix
  const sentence = message === '' ? 'The server refused without a reason.' : message
  const text = details === '' ? sentence : `${sentence} ${details}`
  const fix = advice === undefined ? '' : `${text.endsWith('.') ? '' : '.'} Fix: ${advice}.`
  return new ProcessExit(known?.exit ?? EXIT.failed, `sternpost: ${printable(text + fix)}`, { cause: { code } })
}
