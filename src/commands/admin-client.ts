/**
 * HTTP over the admin socket of the running server: whoever may open the socket is the administrator, no key needed
 * (operations.md 6).
 *
 * Throws ProcessExit: 69 when no server answers there, 77 when the socket may not be opened, 1 when the server refuses,
 * with the server's own sentence and details.
 */
import { request } from 'node:http'
import { errorCode, errorText, EXIT, ProcessExit } from '../base/errors.ts'
import { MINUTE } from '../base/clock.ts'
import { printable } from './print.ts'

export interface AdminRequest {
  socketPath: string
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  path: string
  body?: unknown
}

/** The most entries of a page (contract.md 1). */
const PAGE_ENTRIES = 100

/** The `data` of the server's answer. */
export async function callServer(adminRequest: AdminRequest): Promise<unknown> {
  return successOf(await exchange(adminRequest)).data
}

/** All entries of a list, page after page. `path` ends in its query: `/v1/domains?status=all`. */
export async function listFromServer(socketPath: string, path: string): Promise<unknown[]> {
  const entries: unknown[] = []
  let after: string | null = null
  do {
    const cursor: string = after === null ? '' : `&after=${encodeURIComponent(after)}`
    const pagePath = `${path}&limit=${PAGE_ENTRIES}${cursor}`
    const page = successOf(await exchange({ socketPath, method: 'GET', path: pagePath }))
    if (Array.isArray(page.data)) entries.push(...page.data)
    after = 'next_cursor' in page && typeof page.next_cursor === 'string' ? page.next_cursor : null
  } while (after !== null)
  return entries
}

/** An answer that is text in place of JSON. */
export async function textFromServer(adminRequest: AdminRequest): Promise<string> {
  const answer = await exchange(adminRequest)
  return answer.isText ? answer.body : String(successOf(answer).data)
}

interface ServerAnswer {
  body: string
  isText: boolean
}

function successOf({ body }: ServerAnswer): { data: unknown } {
  const parsed: unknown = parseAnswer(body)
  if (isSuccess(parsed)) return parsed
  throw new ProcessExit(EXIT.failed, `posthorn: ${printable(refusalText(parsed))}`)
}

function exchange({ socketPath, method, path, body }: AdminRequest): Promise<ServerAnswer> {
  return new Promise((resolve, reject) => {
    const headers = { 'Content-Type': 'application/json', 'X-Posthorn-User': process.env['SUDO_USER'] ?? '' }
    const outgoing = request({ socketPath, method, path, headers, timeout: MINUTE }, (incoming) => {
      const pieces: Buffer[] = []
      incoming.on('data', (piece: Buffer) => pieces.push(piece))
      const isText = incoming.headers['content-type']?.startsWith('text/plain') === true
      incoming.on('end', () => resolve({ body: Buffer.concat(pieces).toString('utf8'), isText }))
      incoming.on('error', reject)
    })
    outgoing.on('timeout', () => outgoing.destroy(new Error('no answer within a minute')))
    outgoing.on('error', (error) => reject(connectionProblem(socketPath, error)))
    outgoing.end(body === undefined ? undefined : JSON.stringify(body))
  })
}

function connectionProblem(socketPath: string, error: Error): ProcessExit {
  if (['EACCES', 'EPERM'].includes(errorCode(error))) {
    const fix = 'run it as root or as a member of the group posthorn'
    return new ProcessExit(EXIT.notAllowed, `posthorn: ${socketPath} may not be opened: ${fix}.`, { cause: error })
  }
  const fix = 'start it with `posthorn serve`, or name its folder with --config'
  return new ProcessExit(
    EXIT.unreachable,
    `posthorn: no server answers at ${socketPath} (${errorText(error)}). Fix: ${fix}.`,
    { cause: error },
  )
}

function parseAnswer(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (thrown) {
    throw new ProcessExit(EXIT.internal, 'posthorn: the answer of the server is no JSON.', { cause: thrown })
  }
}

function isSuccess(answer: unknown): answer is { success: true; data: unknown } {
  if (typeof answer !== 'object' || answer === null) return false
  return 'success' in answer && answer.success === true && 'data' in answer
}

function refusalText(answer: unknown): string {
  const error = typeof answer === 'object' && answer !== null && 'error' in answer ? answer.error : null
  if (typeof error !== 'object' || error === null) return 'the server refused without a reason.'
  const message = 'message' in error ? String(error.message) : ''
  const details = 'details' in error ? String(error.details) : ''
  return details === '' ? message : `${message} ${details}`
}
