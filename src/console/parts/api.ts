/**
 * Requests to the API with the session of this browser. A refusal is thrown as ApiProblem with the server's own words;
 * a session that is over leads to the login.
 */
import { noteServerTime } from './format.ts'
import { goToLogin } from './place.ts'

export interface ListPage<Entry> {
  data: Entry[]
  has_more: boolean
  next_cursor: string | null
}

export type Parameters = Record<string, string | number | boolean | null | undefined>

class ApiProblem extends Error {
  readonly code: string
  readonly status: number

  constructor(status: number, code: string, message: string) {
    super(message)
    this.code = code
    this.status = status
  }
}

const UNAUTHORIZED = 401

/** A path below `/v1`, with its query. */
export function pathWith(path: string, parameters: Parameters = {}): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== '')
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return query === '' ? path : `${path}?${query}`
}

/** The `data` of the answer. */
export async function ask<Data>(path: string, parameters?: Parameters): Promise<Data> {
  return (await request<{ data: Data }>('GET', pathWith(path, parameters))).data
}

export function askPage<Entry>(path: string, parameters?: Parameters, ended?: AbortSignal): Promise<ListPage<Entry>> {
  return request('GET', pathWith(path, parameters), undefined, { ended })
}

/** `once`: whoever asks with the same within a day gets the first answer, and nothing is done again. */
export async function act<Data>(
  method: 'POST' | 'PATCH' | 'PUT' | 'DELETE',
  path: string,
  body?: object | string,
  once?: string,
): Promise<Data> {
  return (await request<{ data: Data }>(method, path, body, { once })).data
}

/** Sends a mail, once for each `once`, and gives its id. */
export async function send(mail: object, once: string): Promise<string> {
  return (await request<{ message_id: string }>('POST', '/email/send', mail, { once })).message_id
}

interface RequestOptions {
  ended?: AbortSignal | undefined
  once?: string | undefined
}

async function request<Answer>(
  method: string,
  path: string,
  body?: object | string,
  { ended, once }: RequestOptions = {},
): Promise<Answer> {
  const headers: Record<string, string> = { 'X-Sternpost-Console': '1' }
  if (once !== undefined) headers['Idempotency-Key'] = once
  if (body !== undefined) headers['Content-Type'] = typeof body === 'string' ? 'text/csv' : 'application/json'
  // Kept nowhere: one that the browser means to keep waits while another tab asks the same.
  const init: RequestInit = { method, headers, credentials: 'same-origin', cache: 'no-store' }
  if (ended !== undefined) init.signal = ended
  if (body !== undefined) init.body = typeof body === 'string' ? body : JSON.stringify(body)
  const response = await reach(urlOf(path), init)
  noteServerTime(response.headers.get('Date'))
  const answer = (await response.json().catch(() => null)) as ({ error?: ErrorJson } & Answer) | null
  if (response.status === UNAUTHORIZED) goToLogin()
  if (response.ok && answer !== null) return answer
  const { code = 'unavailable', message = `the server answered ${response.status}`, details = '' } = answer?.error ?? {}
  throw new ApiProblem(response.status, code, details === '' ? message : `${message} ${details}`)
}

interface ErrorJson {
  code: string
  message: string
  details: string
}

/** Routes of the API, and those of the console and the sandbox beside it. */
function urlOf(path: string): string {
  return path.startsWith('/console/') || path.startsWith('/dev/') ? path : `/v1${path}`
}

async function reach(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, init)
  } catch (thrown) {
    if (init.signal?.aborted === true) throw thrown
    const text =
      init.method === 'GET'
        ? 'The server cannot be reached. Is it running?'
        : 'The server cannot be reached, or its answer got lost: look whether this was done before you do it again.'
    throw new ApiProblem(0, 'unavailable', text)
  }
}

/** As a sentence for people. */
export function problemText(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown)
}
