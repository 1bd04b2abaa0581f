/**
 * HTTPS requests to servers that the administrator named, such as a certificate authority, and to where they lead: the
 * authorities of the system and those of a file of his are trusted. A server that was named may have any address; one
 * that another names only a public one. No redirect is followed. Rejects when there is no answer, or not the whole of it
 * in time, or one of more than a MiB.
 */
import { getCACertificates } from 'node:tls'
import { Agent, buildConnector, request } from 'undici'
import { readRegularFile } from '../base/regular-file.ts'
import { SECOND } from '../base/clock.ts'
import { isPublicUnicast } from '../base/ip-address.ts'
import { guardedConnector, lookupBySystem } from './guarded-request.ts'

interface TrustedRequest {
  method: string
  headers: Record<string, string>
  body: string | null
}

interface TrustedAnswer {
  /** Any. */
  status: number
  headers: Record<string, string | string[] | undefined>
  body: string
}

/** The whole of it. */
const REQUEST_MILLISECONDS = 30 * SECOND
const MOST_BODY_BYTES = 1_024 * 1_024

/** `named`: URLs of the servers. Throws the system's error for a file that cannot be read. */
export function createTrustedRequest(named: readonly string[], caFile: string | null) {
  const hosts = new Set(named.map((url) => new URL(url).hostname))
  const own = caFile === null ? [] : [readRegularFile(caFile).toString('utf8')]
  const ca = [...getCACertificates('default'), ...own]
  const toNamed = buildConnector({ ca, timeout: REQUEST_MILLISECONDS })
  const toOthers = guardedConnector((addresses) => addresses.every(isPublicUnicast), lookupBySystem, caFile)
  const dispatcher = new Agent({
    connect: (target, done) => (hosts.has(target.hostname) ? toNamed : toOthers)(target, done),
    keepAliveTimeout: SECOND,
  })
  return async (url: string, { method, headers, body }: TrustedRequest): Promise<TrustedAnswer> => {
    if (!url.startsWith('https://')) throw new Error(`${url.slice(0, MOST_SHOWN)} is no https URL`)
    const signal = AbortSignal.timeout(REQUEST_MILLISECONDS)
    const answer = await request(url, { dispatcher, method: method as 'GET', headers, body, signal })
    return { status: answer.statusCode, headers: answer.headers, body: await textOf(answer.body) }
  }
}

const MOST_SHOWN = 200

/** What is left of a body that is too long is not read. */
async function textOf(body: AsyncIterable<Buffer>): Promise<string> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of body) {
    bytes += piece.length
    if (bytes > MOST_BODY_BYTES) throw new Error(`the answer has more than ${MOST_BODY_BYTES} bytes`)
    pieces.push(piece)
  }
  return Buffer.concat(pieces).toString('utf8')
}
