/**
 * Clients of the HTTP interface that show what is on the wire. Every answer is held against the schema of its route.
 */
import { Agent, request, type IncomingHttpHeaders } from 'node:http'
import { connect, type Socket } from 'node:net'
import { checkResponse } from '../support/response-check.ts'
import { keyNamed, type KeyName } from './api-features.ts'

export interface Asked {
  method?: string
  path: string
  /** null: no Authorization header. */
  key?: KeyName | null
  headers?: Record<string, string>
  body?: string | Uint8Array
  socketPath?: string
  agent?: Agent
}

export interface Got {
  status: number
  headers: IncomingHttpHeaders
  text: string
  json: {
    success?: unknown
    message_id?: string
    status?: string
    data?: Record<string, unknown>
    error?: { code: string; message: string; details: string }
  }
}

/** One request on a connection of its own. */
export function ask(port: number, asked: Asked): Promise<Got> {
  const { method = 'POST', path, key = 'admin', headers = {}, body, socketPath, agent = new Agent() } = asked
  const target = socketPath === undefined ? { host: '127.0.0.1', port } : { socketPath }
  const allHeaders = key === null ? headers : { Authorization: `Bearer ${keyNamed(key)}`, ...headers }
  return new Promise((resolve, reject) => {
    const outgoing = request({ ...target, method, path, headers: allHeaders, agent }, (incoming) => {
      const pieces: Buffer[] = []
      incoming.on('data', (piece: Buffer) => pieces.push(piece))
      incoming.on('end', () => {
        const text = Buffer.concat(pieces).toString('utf8')
        const isJson = incoming.headers['content-type']?.startsWith('application/json') === true && text !== ''
        const json = isJson ? JSON.parse(text) : {}
        const status = incoming.statusCode ?? 0
        try {
          if (method !== 'HEAD') checkResponse({ method, path, status, body: isJson ? json : text })
          resolve({ status, headers: incoming.headers, text, json })
        } catch (thrown) {
          reject(thrown)
        }
      })
      incoming.on('error', reject)
    })
    outgoing.on('error', reject)
    outgoing.end(body)
  })
}

/** A request with a JSON body. */
export function post(port: number, path: string, body: unknown, key: KeyName = 'admin'): Promise<Got> {
  return ask(port, { path, key, body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } })
}

export function get(port: number, path: string, key: KeyName | null = 'admin'): Promise<Got> {
  return ask(port, { method: 'GET', path, key })
}

export interface RawConnection {
  socket: Socket
  write(text: string | Uint8Array): boolean
  /** All that came so far. */
  text(): string
  /** The server sends nothing more. */
  isClosed(): boolean
}

export async function rawConnection(port: number): Promise<RawConnection> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  let text = ''
  let isClosed = false
  socket.on('data', (piece) => (text += piece.toString('latin1')))
  socket.on('error', () => {})
  for (const event of ['end', 'close']) socket.on(event, () => (isClosed = true))
  await new Promise((resolve) => socket.once('connect', resolve))
  return { socket, write: (piece) => socket.write(piece), text: () => text, isClosed: () => isClosed }
}
