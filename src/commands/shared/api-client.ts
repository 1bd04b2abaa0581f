/**
 * The HTTP API as the verbs use it: answers with the fields that the schemas of `api` demand, lists with their pages.
 *
 * Throws what `exchange.ts` throws, and ProcessExit 70 for an answer of another form.
 */
import { HOUR } from '../../base/clock.ts'
import { errorCode, EXIT, ProcessExit } from '../../base/errors.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import { printNote } from './print.ts'
import { exchange, successOf, type Asked, type Success } from './exchange.ts'
import type { ServerAddress } from './server-address.ts'

/** From the version on. */
export type ApiPath = `/v1/${string}`
/** `GET /v1/domains` */
type RequestLine = `${'GET' | 'POST' | 'PATCH' | 'DELETE'} ${ApiPath}`

interface CallOptions {
  /** Sent as JSON. */
  body?: unknown
  /** What to do when there is no such thing; left out: to list what there is. */
  whenMissing?: string
  /** How long the server may take to answer, in milliseconds; left out: a minute. */
  patience?: number
}

/** Parameters behind the question mark; what is undefined is left out. */
export type Query = Record<string, string | undefined>

/**
 * For what acts on all rows of a kind. A replay of 100,000 among a million took 13 s on a busy machine: there may be many
 * millions, and slower ones.
 */
export const LONG_PATIENCE = HOUR

/** The most entries of a page (http/README.md "Conventions"). */
const PAGE_ENTRIES = 100

/** What is looked at of a schema of `api`. */
interface Schema<Answer> {
  shape: Readonly<Record<string, { isOptional(): boolean }>>
  parse(answer: unknown): Answer
}

/**
 * The `data` of the server's answer, with the fields that the schema demands; what they hold is trusted. A POST always
 * has a body.
 */
export async function ask<Answer>(
  asked: Asked,
  schema: Schema<Answer>,
  request: RequestLine,
  body: unknown = request.startsWith('POST') ? {} : undefined,
): Promise<Answer> {
  return readAnswer(schema, await callServer(asked, request, { body }))
}

/** The same for an answer that holds a list, without pages. */
export async function askRows<Row>(asked: Asked, schema: Schema<Row>, path: ApiPath): Promise<Row[]> {
  const answer = await callServer(asked, `GET ${path}`)
  return (Array.isArray(answer) ? answer : []).map((entry) => readAnswer(schema, entry))
}

/** The pages of a list, as they are asked for. */
export async function* askPages<Row>(
  asked: Asked,
  schema: Schema<Row>,
  path: ApiPath,
  query: Query = {},
): AsyncGenerator<Row[]> {
  let after: string | undefined
  do {
    const page = withQuery(path, { limit: String(PAGE_ENTRIES), ...query, after })
    const { data, next_cursor: next } = await wholeAnswer(asked, `GET ${page}`)
    if (Array.isArray(data)) yield data.map((entry) => readAnswer(schema, entry))
    after = typeof next === 'string' ? next : undefined
  } while (after !== undefined)
}

/** All entries of a list with pages. */
export async function askAll<Row>(asked: Asked, schema: Schema<Row>, path: ApiPath, query: Query = {}): Promise<Row[]> {
  const entries: Row[] = []
  for await (const page of askPages(asked, schema, path, query)) entries.push(...page)
  return entries
}

/** The answer as the server of the same version makes it; only the fields that must be there are looked for. */
export function readAnswer<Answer>({ shape }: Schema<Answer>, answer: unknown): Answer {
  const names = Object.keys(shape).filter((name) => shape[name]?.isOptional() === false)
  if (hasFields<Answer>(answer, names)) return answer
  throw new ProcessExit(EXIT.internal, `sternpost: the answer of the server lacks ${names.join(', ')}.`)
}

function hasFields<Answer>(answer: unknown, names: readonly string[]): answer is Answer {
  return isPlainObject(answer) && names.every((name) => name in answer)
}

export async function callServer(asked: Asked, request: RequestLine, options: CallOptions = {}): Promise<unknown> {
  return (await wholeAnswer(asked, request, options))['data']
}

/** The whole answer, for those that have no `data`. */
export async function wholeAnswer(asked: Asked, request: RequestLine, options: CallOptions = {}): Promise<Success> {
  const [method = '', path = ''] = request.split(' ')
  const body = options.body === undefined ? undefined : JSON.stringify(options.body)
  const headers = { 'Content-Type': 'application/json' }
  const answer = await exchange(asked, { method, path, headers, body, patience: options.patience })
  for (const text of answer.warnings) printNote('kind' in asked ? {} : asked, `warning: ${text}`)
  return successOf(answer, options.whenMissing)
}

/** null: it ended with this exit code. */
export async function unlessExit<Value>(exitCode: number, ask: () => Promise<Value>): Promise<Value | null> {
  try {
    return await ask()
  } catch (thrown) {
    if (thrown instanceof ProcessExit && thrown.exitCode === exitCode) return null
    throw thrown
  }
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
export async function textFromServer(asked: Asked, path: string): Promise<string> {
  const answer = await exchange(asked, { method: 'GET', path, headers: {} })
  return answer.type.startsWith('text/plain') ? answer.text : String(successOf(answer)['data'])
}

export function withQuery(path: ApiPath, query: Query): ApiPath {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.set(name, value)
  return parameters.size === 0 ? path : `${path}?${parameters}`
}
