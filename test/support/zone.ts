/**
 * A real DNS server, on loopback or another address (UDP and TCP, one port) whose zone is a literal.
 *
 *   const zone = await startZone({
 *     'example.com': { MX: ['10 mx.example.com'], TXT: ['v=spf1 -all'] },
 *     'null.example': { MX: ['0 .'] },
 *     'mx.example.com': { A: ['127.0.0.2'], AAAA: 'TIMEOUT' },
 *     'www.example.com': { CNAME: 'example.com' },
 *     'broken.example': 'SERVFAIL',
 *   })
 *   createDnsResolver({ servers: [zone.server], ... })
 *
 * It tells "the name exists without that record" (NODATA, also for a name that only has names below it) from "no such
 * name" (NXDOMAIN), follows CNAMEs inside the zone, truncates long answers over UDP so that the asker comes back by
 * TCP, fails by name or by type, and lists the questions it got. RFC 1035 §4, without compression and EDNS.
 */
import { createSocket, type Socket as DatagramSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'

/** TIMEOUT: the question is never answered. */
export type ZoneFailure = 'SERVFAIL' | 'REFUSED' | 'TIMEOUT'

export interface ZoneRecords {
  /** `<priority> <exchange>`, e.g. `10 mx.example.com`; `0 .` is the null MX. */
  MX?: readonly string[] | ZoneFailure
  A?: readonly string[] | ZoneFailure
  AAAA?: readonly string[] | ZoneFailure
  /** One entry per record; longer ones are split into strings of 255 bytes. */
  TXT?: readonly string[] | ZoneFailure
  /** Host names; the key is as in `1.2.0.192.in-addr.arpa`. */
  PTR?: readonly string[] | ZoneFailure
  CNAME?: string
  /** The answer holds the CNAME and no more, as from a server that has no zone for its target. */
  isAliasAlone?: boolean
}

/** Keys are lower-case names without trailing dot. */
export type Zone = Record<string, ZoneRecords | ZoneFailure>

export interface ZoneServer {
  /** `IP:port`, as `dns.servers` takes it. */
  server: string
  /** Every question so far: `MX example.com`, with ` tcp` behind it when it came by TCP. */
  queries: string[]
  /** Changes the zone at once; undefined removes the name. */
  set(name: string, records: ZoneRecords | ZoneFailure | undefined): void
  close(): Promise<void>
}

const TYPE_CODES: Record<string, number> = { A: 1, CNAME: 5, PTR: 12, MX: 15, TXT: 16, AAAA: 28 }
const RESPONSE_CODES = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, REFUSED: 5 } as const
/** Long enough that a resolver which keeps answers would be noticed. */
const TTL_SECONDS = 300
/** RFC 1035 §4.2.1. */
const MOST_UDP_BYTES = 512
const MOST_ALIASES = 8
const HEADER_BYTES = 12

export async function startZone(zone: Zone, wantedPort = 0, address = '127.0.0.1'): Promise<ZoneServer> {
  const names = new Map(Object.entries(zone))
  const queries: string[] = []
  const sockets = new Set<Socket>()
  const { udp, tcp, port } = await listen(wantedPort, address)

  udp.on('message', (query, peer) => {
    const answer = answerQuery(names, query, (question) => queries.push(question))
    if (answer === undefined) return
    udp.send(answer.length > MOST_UDP_BYTES ? truncated(query) : answer, peer.port, peer.address)
  })
  tcp.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
    serveTcp(socket, (query) => answerQuery(names, query, (question) => queries.push(`${question} tcp`)))
  })

  return {
    server: `${address}:${port}`,
    queries,
    set(name, records) {
      if (records === undefined) names.delete(name)
      else names.set(name, records)
    },
    async close() {
      for (const socket of sockets) socket.destroy()
      await Promise.all([
        new Promise<void>((resolve) => udp.close(() => resolve())),
        new Promise<void>((resolve) => tcp.close(() => resolve())),
      ])
    },
  }
}

/** One port for both protocols. Unless one is wanted, TCP picks it, and another one is tried when UDP cannot have it. */
async function listen(
  wantedPort: number,
  address: string,
): Promise<{ udp: DatagramSocket; tcp: Server; port: number }> {
  for (;;) {
    const tcp = createServer().listen(wantedPort, address)
    await once(tcp, 'listening')
    const bound = tcp.address()
    const port = typeof bound === 'object' && bound !== null ? bound.port : 0
    const udp = createSocket('udp4')
    const isBound = await new Promise<boolean>((resolve) => {
      udp.once('error', () => resolve(false))
      udp.bind(port, address, () => resolve(true))
    })
    if (isBound) return { udp, tcp, port }
    udp.close()
    tcp.close()
    if (wantedPort !== 0) throw new Error(`port ${wantedPort} is taken`)
  }
}

/** RFC 1035 §4.2.2: each message has two bytes of length in front. */
function serveTcp(socket: Socket, answer: (query: Buffer) => Buffer | undefined): void {
  let received = Buffer.alloc(0)
  socket.on('data', (chunk: Buffer) => {
    received = Buffer.concat([received, chunk])
    while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
      const end = 2 + received.readUInt16BE(0)
      const reply = answer(received.subarray(2, end))
      received = received.subarray(end)
      if (reply !== undefined) socket.write(Buffer.concat([uint16(reply.length), reply]))
    }
  })
}

type Names = ReadonlyMap<string, ZoneRecords | ZoneFailure>

function answerQuery(names: Names, query: Buffer, note: (question: string) => void): Buffer | undefined {
  if (query.length <= HEADER_BYTES) return undefined
  const { name, end } = readName(query)
  const code = query.readUInt16BE(end)
  const type = Object.keys(TYPE_CODES).find((key) => TYPE_CODES[key] === code) ?? `TYPE${code}`
  note(`${type} ${name}`)
  const result = find(names, name, type)
  if (result.code === 'TIMEOUT') return undefined
  const question = query.subarray(HEADER_BYTES, end + 4)
  const header = replyHeader(query, RESPONSE_CODES[result.code], result.answers.length)
  return Buffer.concat([header, question, ...result.answers])
}

interface Result {
  code: keyof typeof RESPONSE_CODES | 'TIMEOUT'
  answers: Buffer[]
}

function find(names: Names, asked: string, type: string): Result {
  const answers: Buffer[] = []
  let name = asked
  for (let alias = 0; alias <= MOST_ALIASES; alias++) {
    const records = names.get(name)
    if (typeof records === 'string') return { code: records, answers: [] }
    if (records === undefined) {
      const isAbove = [...names.keys()].some((key) => key.endsWith(`.${name}`))
      return { code: isAbove ? 'NOERROR' : 'NXDOMAIN', answers }
    }
    if (records.CNAME === undefined) {
      const data = recordData(records, type)
      if (typeof data === 'string') return { code: data, answers: [] }
      return { code: 'NOERROR', answers: [...answers, ...data.map((bytes) => record(name, type, bytes))] }
    }
    answers.push(record(name, 'CNAME', encodeName(records.CNAME)))
    if (type === 'CNAME' || records.isAliasAlone === true) return { code: 'NOERROR', answers }
    name = records.CNAME.toLowerCase()
  }
  // A circle of aliases: what a recursive resolver answers.
  return { code: 'SERVFAIL', answers: [] }
}

function recordData(records: ZoneRecords, type: string): Buffer[] | ZoneFailure {
  switch (type) {
    case 'A':
      return encodeAll(records.A, (text) => Buffer.from(text.split('.').map(Number)))
    case 'AAAA':
      return encodeAll(records.AAAA, encodeIpv6)
    case 'TXT':
      return encodeAll(records.TXT, encodeText)
    case 'PTR':
      return encodeAll(records.PTR, encodeName)
    case 'MX':
      return encodeAll(records.MX, (text) => {
        const space = text.indexOf(' ')
        return Buffer.concat([uint16(Number(text.slice(0, space))), encodeName(text.slice(space + 1))])
      })
    default:
      return []
  }
}

function encodeAll(
  records: readonly string[] | ZoneFailure | undefined,
  encode: (text: string) => Buffer,
): Buffer[] | ZoneFailure {
  return typeof records === 'string' ? records : (records ?? []).map(encode)
}

function record(name: string, type: string, data: Buffer): Buffer {
  const fixed = Buffer.alloc(8)
  fixed.writeUInt16BE(TYPE_CODES[type] ?? 0, 0)
  fixed.writeUInt16BE(1, 2)
  fixed.writeUInt32BE(TTL_SECONDS, 4)
  return Buffer.concat([encodeName(name), fixed, uint16(data.length), data])
}

function encodeName(name: string): Buffer {
  const labels = name.split('.').filter((label) => label !== '')
  return Buffer.concat([
    ...labels.map((label) => Buffer.concat([Buffer.from([Buffer.byteLength(label)]), Buffer.from(label)])),
    Buffer.from([0]),
  ])
}

function encodeText(text: string): Buffer {
  const bytes = Buffer.from(text)
  const parts: Buffer[] = []
  for (let start = 0; start === 0 || start < bytes.length; start += 255) {
    const part = bytes.subarray(start, start + 255)
    parts.push(Buffer.from([part.length]), part)
  }
  return Buffer.concat(parts)
}

/** Full or shortened with `::`, hexadecimal groups only. */
function encodeIpv6(text: string): Buffer {
  const [head = '', tail = ''] = text.split('::')
  const groupsOf = (part: string): number[] => (part === '' ? [] : part.split(':').map((group) => parseInt(group, 16)))
  const front = groupsOf(head)
  const back = groupsOf(tail)
  const zeros = Array.from({ length: 8 - front.length - back.length }, () => 0)
  return Buffer.concat([...front, ...zeros, ...back].map(uint16))
}

function readName(query: Buffer): { name: string; end: number } {
  const labels: string[] = []
  let position = HEADER_BYTES
  for (let length = query[position] ?? 0; length > 0; length = query[position] ?? 0) {
    labels.push(query.toString('latin1', position + 1, position + 1 + length))
    position += 1 + length
  }
  return { name: labels.join('.').toLowerCase(), end: position + 1 }
}

function replyHeader(query: Buffer, responseCode: number, answerCount: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES)
  query.copy(header, 0, 0, 2)
  // QR, AA, and RD as asked; RA.
  header[2] = 0x84 | ((query[2] ?? 0) & 0x01)
  header[3] = 0x80 | responseCode
  header.writeUInt16BE(1, 4)
  header.writeUInt16BE(answerCount, 6)
  return header
}

function truncated(query: Buffer): Buffer {
  const header = replyHeader(query, RESPONSE_CODES.NOERROR, 0)
  header[2] = (header[2] ?? 0) | 0x02
  return Buffer.concat([header, query.subarray(HEADER_BYTES, readName(query).end + 4)])
}

function uint16(value: number): Buffer {
  return Buffer.from([value >> 8, value & 255])
}
