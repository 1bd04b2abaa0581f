/**
 * A DNS server that stands in front of a good one and spoils what it says: answers long after the question, or about
 * other names than the one that was asked for. Over TCP it passes everything on.
 */
import { createSocket, type Socket as DatagramSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { freePort } from './serve-process.ts'

export interface HostileDns {
  /** `IP:port`. */
  server: string
  close(): Promise<void>
}

export interface HostileDnsOptions {
  /** Port of the good server on 127.0.0.1. */
  goodPort: number
  /** How long an answer about a name takes; undefined: no time. */
  delayOf: (name: string) => number | undefined
  /** TXT records, by owner, that are given whatever was asked for; undefined: the truth. */
  lieAbout: (name: string) => { owner: string; text: string }[] | undefined
}

const HEADER_BYTES = 12
const TXT = 16
const INTERNET = 1
const TTL_SECONDS = 300

export async function startHostileDns(options: HostileDnsOptions): Promise<HostileDns> {
  const { goodPort, delayOf, lieAbout } = options
  const port = await freePort()
  const timers = new Set<NodeJS.Timeout>()
  const sockets = new Set<Socket>()
  const relays = new Set<DatagramSocket>()
  const udp = createSocket('udp4')
  udp.bind(port, '127.0.0.1')
  await once(udp, 'listening')

  udp.on('message', (query, peer) => {
    const { name, end } = readName(query)
    const answer = (bytes: Buffer): void => udp.send(bytes, peer.port, peer.address)
    const give = (): void => {
      const lies = lieAbout(name)
      if (lies === undefined) relay(query, answer)
      else answer(lyingAnswer(query.subarray(0, end + 4), lies))
    }
    const timer = setTimeout(
      () => {
        timers.delete(timer)
        give()
      },
      delayOf(name) ?? 0,
    )
    timers.add(timer)
  })
  function relay(query: Buffer, answer: (bytes: Buffer) => void): void {
    const asking = createSocket('udp4')
    relays.add(asking)
    asking.on('close', () => relays.delete(asking))
    asking.on('message', (bytes) => {
      asking.close()
      answer(bytes)
    })
    asking.send(query, goodPort, '127.0.0.1')
  }
  const tcp = createServer((socket) => {
    const good = connect(goodPort, '127.0.0.1')
    for (const end of [socket, good]) {
      sockets.add(end)
      end.on('close', () => sockets.delete(end))
      end.on('error', () => end.destroy())
    }
    socket.pipe(good).pipe(socket)
  })
  tcp.listen(port, '127.0.0.1')
  await once(tcp, 'listening')

  return {
    server: `127.0.0.1:${port}`,
    async close() {
      for (const timer of timers) clearTimeout(timer)
      for (const asking of relays) asking.close()
      for (const socket of sockets) socket.destroy()
      udp.close()
      tcp.close()
      await once(tcp, 'close')
    },
  }
}

/** Of the one question of a query; RFC 1035 §4.1.2. */
function readName(query: Buffer): { name: string; end: number } {
  const labels: string[] = []
  let at = HEADER_BYTES
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length).toLowerCase())
    at += length + 1
  }
  return { name: labels.join('.'), end: at + 1 }
}

function lyingAnswer(question: Buffer, lies: readonly { owner: string; text: string }[]): Buffer {
  const header = Buffer.from(question.subarray(0, HEADER_BYTES))
  // Response, authoritative, recursion available, no error.
  header.writeUInt16BE(0x8580, 2)
  header.writeUInt16BE(1, 4)
  header.writeUInt16BE(lies.length, 6)
  header.writeUInt32BE(0, 8)
  return Buffer.concat([header, question.subarray(HEADER_BYTES), ...lies.map(textRecord)])
}

function textRecord({ owner, text }: { owner: string; text: string }): Buffer {
  const labels = owner.split('.').map((label) => Buffer.from(`${String.fromCharCode(label.length)}${label}`, 'latin1'))
  const strings = (text.match(/[^]{1,255}/g) ?? []).map((part) =>
    // pieces of 255 characters
    Buffer.from(`${String.fromCharCode(part.length)}${part}`, 'latin1'),
  )
  const data = Buffer.concat(strings)
  const fixed = Buffer.alloc(10)
  fixed.writeUInt16BE(TXT, 0)
  fixed.writeUInt16BE(INTERNET, 2)
  fixed.writeUInt32BE(TTL_SECONDS, 4)
  fixed.writeUInt16BE(data.length, 8)
  return Buffer.concat([...labels, Buffer.from([0]), fixed, data])
}
