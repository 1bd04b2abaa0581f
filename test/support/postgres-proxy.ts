/**
 * Somebody in the middle between the server and PostgreSQL: passes all on, knows commits, and cuts, swallows or delays.
 */
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

/**
 * What becomes of a commit: it gets through; it never reaches the server; it happens and its answer is kept back; the
 * connection is cut as it is sent; or all of the connection is swallowed behind it, and nobody hears of that.
 */
export type CommitFate = 'pass' | 'cut before' | 'cut after' | 'cut at once' | 'swallow'

export interface PostgresProxy {
  port: number
  /** Of connections that are open. */
  connections(): number
  /** Another server takes the place of the one behind. */
  lead(port: number): void
  /** What is sent from now on goes nowhere, and connections stay open, until it is false again. */
  swallow(isSwallowing: boolean): void
  cutAll(): void
  close(): Promise<void>
}

interface ProxyRules {
  fateOf?: () => CommitFate
  /** Milliseconds that the answer to a commit is late. */
  delay?: number
}

export async function startPostgresProxy(port: number, { fateOf = () => 'pass', delay = 0 }: ProxyRules = {}) {
  const pairs = new Set<{ cut(): void }>()
  let target = port
  let isSwallowing = false
  const server = createServer((client) => {
    const upstream = connect(target, '127.0.0.1')
    const pair = { cut: () => [client, upstream].forEach((socket) => socket.destroy()) }
    pairs.add(pair)
    for (const socket of [client, upstream]) {
      socket
        .setNoDelay()
        .on('error', () => {})
        .on('close', () => {
          pairs.delete(pair)
          pair.cut()
        })
    }
    passOn(client, upstream, { fateOf, delay, cut: pair.cut, isSwallowing: () => isSwallowing })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const proxy: PostgresProxy = {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    connections: () => pairs.size,
    lead: (port) => void (target = port),
    swallow: (value) => void (isSwallowing = value),
    cutAll: () => pairs.forEach(({ cut }) => cut()),
    async close() {
      proxy.cutAll()
      server.close()
      await once(server, 'close')
    },
  }
  return proxy
}

interface Passing extends Required<ProxyRules> {
  cut(): void
  isSwallowing(): boolean
}

function passOn(client: Socket, upstream: Socket, { fateOf, delay, cut, isSwallowing }: Passing): void {
  const isCommit = createCommitWatch()
  /** Of the commit that is under way. */
  let fate: CommitFate = 'pass'
  let isSwallowed = false
  client.on('data', (bytes: Buffer) => {
    if (isSwallowed || isSwallowing()) return
    const commits = isCommit(bytes)
    if (commits) fate = fateOf()
    if (fate === 'cut before') return cut()
    upstream.write(bytes)
    if (fate === 'cut at once') cut()
  })
  upstream.on('data', (bytes: Buffer) => {
    if (isSwallowed || isSwallowing()) return
    const isDone = bytes.includes(COMMITTED)
    if (isDone && fate === 'cut after') return cut()
    if (isDone && fate === 'swallow') return void (isSwallowed = true)
    if (isDone && delay > 0) setTimeout(() => client.write(bytes), delay)
    else client.write(bytes)
  })
}

/** CommandComplete of a commit. */
const COMMITTED = Buffer.from('COMMIT\0')
const PARSE = 'P'.charCodeAt(0)
const BIND = 'B'.charCodeAt(0)

/** Whether what a client sends runs its prepared `commit`. Messages: a letter, then a length that counts itself. */
function createCommitWatch(): (bytes: Buffer) => boolean {
  let rest: Buffer = Buffer.alloc(0)
  let isStarted = false
  let commitName: string | undefined
  return (bytes) => {
    rest = Buffer.concat([rest, bytes])
    let found = false
    for (;;) {
      // The first message has no letter.
      const head = isStarted ? 1 : 0
      if (rest.length < head + 4) return found
      const length = head + rest.readUInt32BE(head)
      if (rest.length < length) return found
      const [first = '', second = ''] = rest.toString('latin1', head + 4, length).split('\0')
      if (isStarted && rest[0] === PARSE && second === 'commit') commitName = first
      if (isStarted && rest[0] === BIND && second === commitName) found = true
      isStarted = true
      rest = rest.subarray(length)
    }
  }
}
