/**
 * An SMTP server of raw TCP whose replies are written down by the test, stage by stage.
 *
 * It records who connected, what was said, and the exact bytes of each message. It knows nothing of right and wrong: a
 * reply is sent as it was given, but DATA and BDAT without an accepted recipient are always refused. `close` drops the connection
 * in place of a reply, `silence` never answers.
 */
import { execFileSync } from 'node:child_process'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { createSecureContext, TLSSocket } from 'node:tls'
import { setTimeout as sleep } from 'node:timers/promises'

export type Reply = string | 'close' | 'silence' | { afterMilliseconds: number; reply: string }
export type Stage =
  'banner' | 'ehlo' | 'helo' | 'starttls' | 'mail' | 'rcpt' | 'data' | 'dot' | 'bdat' | 'rset' | 'quit'
/** A list is used up in order over all connections, then its last one repeats. */
export type Script = Partial<Record<Stage, Reply | Reply[] | ((line: string, connection: MxConnection) => Reply)>>

export interface MxConnection {
  remoteAddress: string
  ehloName: string
  isTls: boolean
  /** Every command line, DATA's content left out. */
  commands: string[]
  isClosed: boolean
}

export interface MxMessage {
  from: string
  to: string
  /** As sent between DATA and the dot, dot-stuffing undone, or as the chunk of a BDAT. */
  bytes: Buffer
  connection: MxConnection
}

export interface ScriptedMx {
  address: string
  port: number
  connections: MxConnection[]
  /** Each message whose final dot or last chunk came behind a recipient that was taken, whatever was answered. */
  messages: MxMessage[]
  close(): Promise<void>
}

export interface ScriptedMxOptions {
  address?: string
  port?: number
  script?: Script
  /** Announced after EHLO. */
  extensions?: string[]
  /** STARTTLS is announced: a key and certificate, or a handshake that fails. */
  tls?: { key: string; cert: string } | 'broken'
}

const DEFAULTS: Record<Stage, string> = {
  banner: '220 mx.test ESMTP',
  ehlo: '',
  helo: '250 mx.test',
  starttls: '220 2.0.0 go ahead',
  mail: '250 2.1.0 ok',
  rcpt: '250 2.1.5 ok',
  data: '354 go on',
  dot: '250 2.0.0 queued',
  bdat: '250 2.0.0 queued',
  rset: '250 2.0.0 reset',
  quit: '221 2.0.0 bye',
}
const VERBS: [RegExp, Stage][] = [
  [/^EHLO/i, 'ehlo'],
  [/^HELO/i, 'helo'],
  [/^STARTTLS/i, 'starttls'],
  [/^MAIL/i, 'mail'],
  [/^RCPT/i, 'rcpt'],
  [/^DATA/i, 'data'],
  [/^BDAT/i, 'bdat'],
  [/^RSET/i, 'rset'],
  [/^QUIT/i, 'quit'],
]

export async function scriptedMx(options: ScriptedMxOptions = {}): Promise<ScriptedMx> {
  const { address = '127.0.0.1', port = 0 } = options
  const connections: MxConnection[] = []
  const messages: MxMessage[] = []
  const sockets = new Set<Socket>()
  const replyTo = createReplies(options)
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    const connection: MxConnection = {
      remoteAddress: socket.remoteAddress ?? '',
      ehloName: '',
      isTls: false,
      commands: [],
      isClosed: false,
    }
    connections.push(connection)
    void converse(socket, connection, { replyTo, messages, tls: options.tls })
  })
  await listen(server, port, address)
  const bound = server.address()
  return {
    address,
    connections,
    messages,
    port: typeof bound === 'object' && bound !== null ? portOf(bound) : port,
    close() {
      for (const socket of sockets) socket.destroy()
      return new Promise((resolve) => void server.close(() => resolve()))
    },
  }
}

type ReplyTo = (stage: Stage, line: string, connection: MxConnection) => Reply

interface Dialogue {
  replyTo: ReplyTo
  messages: MxMessage[]
  tls: ScriptedMxOptions['tls']
}

async function converse(plain: Socket, connection: MxConnection, { replyTo, messages, tls }: Dialogue): Promise<void> {
  let socket: Socket = plain
  let input = lineReader(socket)
  plain.on('close', () => {
    connection.isClosed = true
  })
  if (!(await say(socket, replyTo('banner', '', connection)))) return
  let from = ''
  let to = ''
  let hasSender = false
  let hasRecipient = false
  for (;;) {
    const line = await input.line()
    if (line === undefined) return
    connection.commands.push(line)
    const stage = VERBS.find(([verb]) => verb.test(line))?.[1]
    if (stage === undefined) {
      socket.write('500 5.5.1 what\r\n')
      continue
    }
    if (stage === 'ehlo' || stage === 'helo') connection.ehloName = line.slice(5)
    if (stage === 'mail') from = pathOf(line)
    if (stage === 'rcpt') to = pathOf(line)
    const isOutOfTurn: boolean = (stage === 'data' || stage === 'bdat') && !hasRecipient
    if (stage === 'bdat') {
      // It is read whatever comes of it (RFC 3030 §2).
      const bytes = await input.bytes(Number(line.split(' ')[1]))
      if (bytes === undefined) return
      if (hasRecipient) messages.push({ from, to, bytes, connection })
    }
    const reply: Reply = isOutOfTurn ? '503 5.5.1 no valid recipients' : replyTo(stage, line, connection)
    if (!(await say(socket, reply))) return
    if (stage === 'mail') hasSender = textOf(reply).startsWith('2')
    if (stage === 'rcpt') hasRecipient = hasSender && textOf(reply).startsWith('2')
    if (stage === 'mail' || stage === 'rset' || stage === 'bdat') hasRecipient = false
    if (stage === 'quit') return void socket.end()
    if (stage === 'starttls' && textOf(reply).startsWith('220')) {
      const secured = await secure(socket, tls)
      if (secured === undefined) return
      connection.isTls = true
      socket = secured
      input = lineReader(socket)
    }
    if (stage === 'data' && textOf(reply).startsWith('354')) {
      const bytes = await input.message()
      if (bytes === undefined) return
      messages.push({ from, to, bytes, connection })
      if (!(await say(socket, replyTo('dot', '', connection)))) return
    }
  }
}

/** False when the dialogue is over. */
async function say(socket: Socket, reply: Reply): Promise<boolean> {
  if (reply === 'close') {
    socket.destroy()
    return false
  }
  if (reply === 'silence') return false
  if (typeof reply === 'object') await sleep(reply.afterMilliseconds)
  socket.write(textOf(reply).endsWith('\r\n') ? textOf(reply) : `${textOf(reply)}\r\n`)
  return true
}

function textOf(reply: Reply): string {
  return typeof reply === 'string' ? reply : reply.reply
}

const EXTENSIONS = ['PIPELINING', 'SIZE 10485760', '8BITMIME']

function createReplies({ script = {}, extensions = EXTENSIONS, tls }: ScriptedMxOptions): ReplyTo {
  const used = new Map<Stage, number>()
  return (stage, line, connection) => {
    const scripted = script[stage]
    if (typeof scripted === 'function') return scripted(line, connection)
    if (Array.isArray(scripted)) {
      const index = used.get(stage) ?? 0
      used.set(stage, index + 1)
      return scripted[Math.min(index, scripted.length - 1)] ?? DEFAULTS[stage]
    }
    if (scripted !== undefined) return scripted
    if (stage !== 'ehlo') return DEFAULTS[stage]
    const lines = ['mx.test', ...extensions, ...(tls === undefined || connection.isTls ? [] : ['STARTTLS'])]
    return lines.map((text, index) => `250${index === lines.length - 1 ? ' ' : '-'}${text}`).join('\r\n')
  }
}

interface LineReader {
  line(): Promise<string | undefined>
  bytes(count: number): Promise<Buffer | undefined>
  /** Up to and without the final dot. */
  message(): Promise<Buffer | undefined>
}

function lineReader(socket: Socket): LineReader {
  let buffer = Buffer.alloc(0)
  let isOver = false
  let wake = (): void => {}
  socket.on('data', (chunk: Buffer) => {
    buffer = Buffer.concat([buffer, chunk])
    wake()
  })
  const end = (): void => {
    isOver = true
    wake()
  }
  socket.on('close', end)
  socket.on('end', end)
  const more = (): Promise<void> =>
    new Promise((resolve) => {
      wake = resolve
    })
  const upTo = async (mark: string): Promise<Buffer | undefined> => {
    for (;;) {
      const index = buffer.indexOf(mark)
      if (index >= 0) {
        const found = buffer.subarray(0, index + mark.length)
        buffer = buffer.subarray(index + mark.length)
        return found
      }
      if (isOver) return undefined
      await more()
    }
  }
  return {
    line: async () => (await upTo('\r\n'))?.subarray(0, -2).toString('utf8'),
    async bytes(count) {
      while (buffer.length < count && !isOver) await more()
      if (buffer.length < count) return undefined
      const found = buffer.subarray(0, count)
      buffer = buffer.subarray(count)
      return found
    },
    async message() {
      // An empty message has no line end in front of its dot.
      while (buffer.length < 3 && !isOver) await more()
      if (buffer.subarray(0, 3).equals(Buffer.from('.\r\n'))) return (await upTo('.\r\n'))?.subarray(0, 0)
      const found = await upTo('\r\n.\r\n')
      // A dot at the start of a line was doubled (RFC 5321 §4.5.2).
      return found && Buffer.from(found.subarray(0, -3).toString('latin1').replaceAll('\r\n..', '\r\n.'), 'latin1')
    },
  }
}

async function secure(socket: Socket, tls: ScriptedMxOptions['tls']): Promise<TLSSocket | undefined> {
  socket.removeAllListeners('data')
  if (tls === undefined || tls === 'broken') {
    socket.once('data', () => socket.end('this is no TLS\r\n'))
    return undefined
  }
  const secured = new TLSSocket(socket, { isServer: true, secureContext: createSecureContext(tls) })
  secured.on('error', () => {})
  return new Promise((resolve) => {
    secured.once('secure', () => resolve(secured))
    secured.once('close', () => resolve(undefined))
  })
}

/** What stands between the angle brackets of MAIL or RCPT. */
function pathOf(line: string): string {
  return /<([^>]*)>/.exec(line)?.[1] ?? ''
}

function portOf(bound: AddressInfo): number {
  return bound.port
}

function listen(server: Server, port: number, address: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, address, resolve)
  })
}

/** A fresh key and self-signed certificate for `mx.test`, or undefined on a machine without openssl. */
export function selfSigned(): { key: string; cert: string } | undefined {
  try {
    const pem = execFileSync(
      'openssl',
      [
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-days',
        '2',
        '-subj',
        '/CN=mx.test',
        '-keyout',
        '-',
        '-out',
        '-',
      ],
      { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
    )
    // The two PEM blocks that openssl prints one after the other.
    const [key, cert] = ['PRIVATE KEY', 'CERTIFICATE'].map(
      (kind) => new RegExp(`-----BEGIN ${kind}-----[^]*?-----END ${kind}-----`).exec(pem)?.[0],
    )
    return key === undefined || cert === undefined ? undefined : { key, cert }
  } catch {
    return undefined
  }
}
