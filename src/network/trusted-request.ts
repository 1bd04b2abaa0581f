/**
 * HTTP requests to a server that the administrator named, such as a certificate authority: any address, the authorities
 * of the system and those of a file of his. Rejects when there is no answer, or not the whole of it in time.
 */
import { getCACertificates } from 'node:tls'
import { Agent, request } from 'undici'
import { readRegularFile } from '../base/regular-file.ts'
import { SECOND } from '../base/clock.ts'

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

const REQUEST_MILLISECONDS = 30 * SECOND

/** Throws the system's error for a file that cannot be read. */
export function createTrustedRequest(caFile: string | null) {
  const own = caFile === null ? [] : [readRegularFile(caFile).toString('utf8')]
  const dispatcher = new Agent({
    connect: { ca: [...getCACertificates('default'), ...own], timeout: REQUEST_MILLISECONDS },
    headersTimeout: REQUEST_MILLISECONDS,
    bodyTimeout: REQUEST_MILLISECONDS,
    keepAliveTimeout: SECOND,
  })
  return async (url: string, { method, headers, body }: TrustedRequest): Promise<TrustedAnswer> => {
    const answer = await request(url, { dispatcher, method: method as 'GET', headers, body })
    return { status: answer.statusCode, headers: answer.headers, body: await answer.body.text() }
  }
}
