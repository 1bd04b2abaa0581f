/**
 * HTTP/1.1 as bytes: what node:http would not write, and each answer as it came. Reads what may follow a request: one
 * answer, several, or none before the connection ends.
 */
import { once } from 'node:events'
import { connect } from 'node:net'

export interface RawAnswer {
  status: number
  /** Names in lower case. */
  headers: Map<string, string>
  body: string
}

export interface RawHttp {
  readonly isOpen: boolean
  /** Bytes whose answer nobody waits for. */
  write(bytes: string): void
  /** The next answer, or null when the connection ends before it; throws after half a minute of silence. */
  ask(bytes: Buffer, isHead: boolean): Promise<RawAnswer | null>
  /** All answers until the server ends the connection, but that of `LAST_REQUEST`; `isCut`: these bytes are no whole request, and our side ends. */
  askLast(bytes: Buffer, isCut: boolean): Promise<RawAnswer[]>
  close(): void
}

const PATIENCE = 30_000
const HEAD_END = '\r\n\r\n'
/** Behind whatever came before, so that the server ends the connection when it has answered all. */
const LAST_REQUEST = 'GET /health HTTP/1.1\r\nHost: mail.sternpost.test\r\nConnection: close\r\n\r\n'

export async function openRawHttp(port: number, localAddress: string): Promise<RawHttp> {
  const socket = connect({ port, host: '127.0.0.1', localAddress, allowHalfOpen: true, noDelay: true })
  let text = ''
  let isOpen = true
  let wake = (): void => {}
  const end = (): void => {
    isOpen = false
    socket.destroy()
    wake()
  }
  socket.on('error', end)
  for (const event of ['end', 'close']) socket.on(event, end)
  socket.on('data', (bytes) => {
    text += bytes.toString('latin1')
    wake()
  })
  await Promise.race([once(socket, 'connect'), once(socket, 'close')])

  const next = async (isHead: boolean): Promise<RawAnswer | null> => {
    for (;;) {
      const taken = takeAnswer(text, isHead, !isOpen)
      if (taken !== null) {
        text = taken.rest
        if (taken.isEndless) {
          text = ''
          end()
        }
        return taken.answer
      }
      if (!isOpen) return null
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      wake = resolve
      const timer = setTimeout(() => reject(new Error(`no answer: ${JSON.stringify(text.slice(0, 200))}`)), PATIENCE)
      await promise.finally(() => clearTimeout(timer))
    }
  }
  return {
    get isOpen() {
      return isOpen
    },
    write: (bytes) => void socket.write(bytes),
    async ask(bytes, isHead) {
      socket.write(bytes)
      const answer = await next(isHead)
      if (answer?.headers.get('connection') === 'close') end()
      return answer
    },
    async askLast(bytes, isCut) {
      if (isCut) socket.end(bytes)
      else socket.write(Buffer.concat([bytes, Buffer.from(LAST_REQUEST)]))
      const answers: RawAnswer[] = []
      for (let answer = await next(false); answer !== null; answer = await next(false)) answers.push(answer)
      return answers.filter(({ body }) => !body.includes('"queue_depth"'))
    },
    close: end,
  }
}

interface Taken {
  answer: RawAnswer
  rest: string
  /** Its body goes on for ever and was not read. */
  isEndless: boolean
}

/** The first whole answer of a text that has a character for each byte; null: it is not there yet. */
function takeAnswer(text: string, isHead: boolean, isOver: boolean): Taken | null {
  const headEnd = text.indexOf(HEAD_END)
  if (headEnd < 0) {
    if (isOver && text !== '') throw new Error(`no whole head: ${JSON.stringify(text.slice(0, 200))}`)
    return null
  }
  const [first = '', ...lines] = text.slice(0, headEnd).split('\r\n')
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(first)?.[1] ?? Number.NaN)
  if (Number.isNaN(status)) throw new Error(`no status line: ${JSON.stringify(first)}`)
  const headers = new Map(
    lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]),
  )
  const behind = text.slice(headEnd + HEAD_END.length)
  if (status < 200) return takeAnswer(behind, isHead, isOver)
  const isEndless = headers.get('content-type')?.startsWith('text/event-stream') === true
  const body = isHead || isEndless ? { bytes: '', rest: behind } : bodyOf(headers, behind, isOver)
  if (body === null) return null
  const answer = { status, headers, body: Buffer.from(body.bytes, 'latin1').toString() }
  return { answer, rest: body.rest, isEndless }
}

function bodyOf(headers: Map<string, string>, text: string, isOver: boolean): { bytes: string; rest: string } | null {
  if (headers.get('transfer-encoding') === 'chunked') return chunksOf(text)
  const length = headers.get('content-length')
  if (length === undefined) return isOver ? { bytes: text, rest: '' } : null
  return text.length < Number(length)
    ? null
    : { bytes: text.slice(0, Number(length)), rest: text.slice(Number(length)) }
}

function chunksOf(text: string): { bytes: string; rest: string } | null {
  let bytes = ''
  for (let at = 0; ;) {
    const lineEnd = text.indexOf('\r\n', at)
    const size = parseInt(text.slice(at, lineEnd), 16)
    const next = lineEnd + 2 + size + 2
    if (lineEnd < 0 || text.length < next) return null
    if (size === 0) return { bytes, rest: text.slice(next) }
    bytes += text.slice(lineEnd + 2, next - 2)
    at = next
  }
}
