/**
 * Fetches a tracked URL as a person's mail program does, but from our own HTTP server, whatever host it names: the
 * writer of a mail must not choose what this machine connects to. Rejects without such a server, or without an answer
 * in 10 s.
 */
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { SECOND } from '../base/clock.ts'

/** Our own listener that serves tracking. */
export interface OwnHttpServer {
  address: string
  port: number
  isTls: boolean
}

export type Visit = (url: string) => Promise<void>

const BROWSER = 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0'
const LONGEST_WAIT = 10 * SECOND

/** `ownServer` gives null when there is none. */
export function createVisit(ownServer: () => OwnHttpServer | null | Promise<OwnHttpServer | null> = () => null): Visit {
  return async (text) => {
    const url = new URL(text)
    const server = await ownServer()
    if (server === null) throw new Error(`${url.host} is not fetched: there is no server of ours for tracked links`)
    await get(url, server)
  }
}

function get({ pathname, search, host, hostname }: URL, { address, port, isTls }: OwnHttpServer): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = (isTls ? httpsRequest : httpRequest)({
      host: address,
      port,
      path: `${pathname}${search}`,
      agent: false,
      timeout: LONGEST_WAIT,
      headers: { Host: host, 'User-Agent': BROWSER, Accept: 'text/html,image/*;q=0.8,*/*;q=0.5' },
      // The certificate is our own, and this is no secret.
      ...(isTls ? { servername: hostname, rejectUnauthorized: false } : {}),
    })
    request.on('response', (response) => {
      response.resume()
      response.on('close', resolve)
    })
    request.on('timeout', () => request.destroy(new Error(`no answer from ${host}`)))
    request.on('error', reject)
    request.end()
  })
}
