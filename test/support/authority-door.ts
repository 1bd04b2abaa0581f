/**
 * A door before Pebble: every request of a client passes here, and a test may look at it, answer in Pebble's place, or
 * hang up. Pebble is asked under the name of the door, so all its URLs lead here.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { Agent, request } from 'undici'
import type { Pebble } from './pebble.ts'
import { createTestAuthority } from './test-authority.ts'

export interface PassedRequest {
  method: string
  path: string
  /** What it asks for, JSON; empty: nothing. */
  payload: string
}

export interface PassedAnswer {
  status: number
  headers: Record<string, string | string[] | undefined>
  body: string
}

/** `pass` asks Pebble; null: the connection is cut. */
export type DoorRule = (asked: PassedRequest, pass: () => Promise<PassedAnswer>) => Promise<PassedAnswer | null>

export interface AuthorityDoor {
  directory: string
  caFile: string
  /** `https://localhost:port` */
  origin: string
}

export async function startAuthorityDoor(
  t: { teardown(end: () => unknown): void },
  pebble: Pick<Pebble, 'directory' | 'authority'>,
  rule: DoorRule,
): Promise<AuthorityDoor> {
  const authority = createTestAuthority('Door before Pebble')
  const { chain, key } = authority.issue(['localhost'])
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-door-'))
  const caFile = join(folder, 'ca.pem')
  // Pebble can be asked past it, too.
  writeFileSync(caFile, `${authority.certificate}\n${pebble.authority}`)
  const dispatcher = new Agent({ connect: { ca: pebble.authority } })
  const answer = async (asked: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method = 'GET', url = '/', headers } = asked
    const body = await buffer(asked)
    const { host = '', 'content-type': type = 'application/jose+json' } = headers
    const pass = async (): Promise<PassedAnswer> => {
      const sent = { dispatcher, method: method as 'GET', headers: { host, 'content-type': type } }
      const got = await request(new URL(url, pebble.directory), { ...sent, ...(body.length === 0 ? {} : { body }) })
      return { status: got.statusCode, headers: got.headers, body: await got.body.text() }
    }
    const got = await rule({ method, path: url, payload: payloadIn(body) }, pass)
    if (got === null) return void response.destroy()
    const { 'content-length': _, ...others } = got.headers
    response.writeHead(got.status, others).end(got.body)
  }
  const server = createServer({ cert: chain, key }, (asked, response) => {
    // Pebble may be down: then this one is, too.
    answer(asked, response).catch(() => response.destroy())
  }).listen(0, 'localhost')
  await once(server, 'listening')
  t.teardown(async () => {
    server.closeAllConnections()
    server.close()
    await dispatcher.destroy()
    authority.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const origin = `https://localhost:${(server.address() as AddressInfo).port}`
  return { origin, directory: `${origin}/dir`, caFile }
}

/** Of a signed request (RFC 7515 §7.2.2). */
function payloadIn(body: Buffer): string {
  if (body.length === 0) return ''
  const { payload } = JSON.parse(body.toString()) as { payload: string }
  return Buffer.from(payload, 'base64url').toString()
}
