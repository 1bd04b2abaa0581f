/**
 * Somebody in the middle of an SMTP dialogue: passes everything on between client and server, but for what its rules
 * change, and keeps what the client said in plain text.
 */
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

export interface ProxiedConnection {
  /** Lines of the client before TLS, or all of them. */
  said: string[]
  isEncrypted: boolean
  isClosed: boolean
  /** In place of the server. */
  tellClient(line: string): void
  /** Says no more to the client, and goes on listening. */
  endToClient(): void
  reset(): void
}

export interface ProxyRules {
  /** A line of the server before TLS: what is passed on in its place. */
  fromServer?(line: string): string
  /** A line of the client before TLS: what is passed on in its place, or null for nothing. */
  fromClient?(line: string, connection: ProxiedConnection): string | null
  /** The reply to a final dot was passed on. */
  afterDot?(connection: ProxiedConnection): void
  /** The client has begun the handshake; nothing of it was passed on. */
  onHandshake?(connection: ProxiedConnection): void
}

export interface SmtpProxy {
  connections: readonly ProxiedConnection[]
  close(): Promise<void>
}

interface Place {
  address: string
  port: number
}

export async function startSmtpProxy(place: Place, target: Place, rules: ProxyRules): Promise<SmtpProxy> {
  const sockets = new Set<Socket>()
  const connections: ProxiedConnection[] = []
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect({ host: target.address, port: target.port })
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => {})
    }
    connections.push(pass(client, upstream, rules))
  })
  server.listen(place.port, place.address)
  await once(server, 'listening')
  return {
    connections,
    async close() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

type Stage = 'commands' | 'body' | 'dot'

function pass(client: Socket, upstream: Socket, rules: ProxyRules): ProxiedConnection {
  let stage: Stage = 'commands'
  let isStartingTls = false
  const connection: ProxiedConnection = {
    said: [],
    isEncrypted: false,
    isClosed: false,
    tellClient: (line) => void client.write(`${line}\r\n`, 'latin1'),
    endToClient: () => void client.end(),
    reset() {
      client.resetAndDestroy()
      upstream.destroy()
    },
  }

  function hearServer(line: string): void {
    const isReply = /^\d{3}( |$)/.test(line)
    client.write(`${rules.fromServer?.(line) ?? line}\r\n`, 'latin1')
    if (isStartingTls && isReply) {
      isStartingTls = false
      connection.isEncrypted = line.startsWith('220')
    }
    if (line.startsWith('354')) stage = 'body'
    if (stage !== 'dot' || !isReply) return
    stage = 'commands'
    rules.afterDot?.(connection)
  }
  function hearClient(line: string): void {
    connection.said.push(line)
    if (stage === 'body' && line === '.') stage = 'dot'
    const passed = stage === 'commands' && rules.fromClient !== undefined ? rules.fromClient(line, connection) : line
    if (passed === null) return
    isStartingTls = /^STARTTLS/i.test(passed)
    upstream.write(`${passed}\r\n`, 'latin1')
  }
  function hearHandshake(): boolean {
    rules.onHandshake?.(connection)
    return !client.destroyed
  }

  const closed = (): void => {
    connection.isClosed = true
    upstream.end()
  }
  client.on('close', closed).on('end', closed)
  upstream.on('end', () => client.end())
  upstream.on('close', () => client.end())
  const isRaw = (): boolean => connection.isEncrypted
  readLines(upstream, { isRaw, onLine: hearServer, onBytes: (bytes) => void client.write(bytes) })
  readLines(client, { isRaw, onLine: hearClient, onBytes: (bytes) => void (hearHandshake() && upstream.write(bytes)) })
  return connection
}

interface Reading {
  /** No lines any more: bytes as they come. */
  isRaw(): boolean
  onLine(line: string): void
  onBytes(bytes: Buffer): void
}

function readLines(socket: Socket, { isRaw, onLine, onBytes }: Reading): void {
  let text = ''
  socket.on('data', (chunk: Buffer) => {
    if (isRaw()) return onBytes(chunk)
    text += chunk.toString('latin1')
    for (let end = text.indexOf('\r\n'); end >= 0 && !isRaw(); end = text.indexOf('\r\n')) {
      const line = text.slice(0, end)
      text = text.slice(end + 2)
      onLine(line)
    }
    if (isRaw() && text !== '') onBytes(Buffer.from(text, 'latin1'))
    if (isRaw()) text = ''
  })
}
