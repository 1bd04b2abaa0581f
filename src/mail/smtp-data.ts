/**
 * The content of DATA as it comes over the wire: undoes dot-stuffing and finds the end, RFC 5321 §4.5.2. Only CR LF dot
 * CR LF is an end, or dot CR LF at the very start. A dot before another dot at the start of a line is dropped, also where
 * that line begins behind a bare LF.
 *
 * It stands in for smtp-server's own way, which schedules a turn for each dot that it drops: 30 MB of `..` lines took
 * the main thread 70 seconds. Here a chunk is one pass, linear in its bytes.
 */

/** What smtp-server's parser has for us; none of it is in its manual, and test/inbound/hostile-clients pins it. */
interface DataParser {
  _dataStream: DataStream | null
  _countDataBytes(count: number): void
  _endDataMode(content: Buffer | false, rest: Buffer, done: Done): void
  _feedDataStream(chunk: Buffer, done: Done): void
}

interface DataStream {
  writable: boolean
  destroyed: boolean
  write(content: Buffer): boolean
  once(event: 'drain' | 'close', listener: () => void): unknown
  off(event: 'drain' | 'close', listener: () => void): unknown
}

/** `rest`: what is behind the end; null: the end has not come. */
interface Unstuffed {
  content: Buffer
  rest: Buffer | null
}

type Done = (error?: Error | null) => void

const LF = 0x0a
const CR = 0x0d
const DOT = 0x2e
const LF_DOT = Buffer.from('\n.')
const NOTHING = Buffer.alloc(0)

/** Lets the parser read DATA in one pass. */
export function readDataInOnePass(parser: DataParser): void {
  let stream: DataStream | null = null
  let unstuffing = createUnstuffing()
  parser._feedDataStream = (chunk, done) => {
    if (parser._dataStream !== stream) {
      stream = parser._dataStream
      unstuffing = createUnstuffing()
    }
    const { content, rest } = unstuffing.add(chunk)
    parser._countDataBytes(content.length)
    if (rest !== null) parser._endDataMode(content, rest, done)
    else if (content.length === 0 || stream?.writable !== true || stream.write(content)) done()
    else if (stream.destroyed) done()
    else onceWritable(stream, done)
  }
}

/** A stream that was destroyed never drains, it only closes. */
function onceWritable(stream: DataStream, done: Done): void {
  const goOn = (): void => {
    stream.off('drain', goOn)
    stream.off('close', goOn)
    done()
  }
  stream.once('drain', goOn)
  stream.once('close', goOn)
}

/** Of one DATA. */
export function createUnstuffing() {
  /** Begins with a dot at the start of a line; more has to be seen to judge it. */
  let pending: Buffer = NOTHING
  /** The two bytes before `pending`. The start of DATA counts as the start of a line. */
  let [beforeLast, last] = [CR, LF]

  /** Of bytes with dots at the start of lines. */
  const read = (bytes: Buffer): Unstuffed => {
    const kept = Buffer.allocUnsafe(bytes.length)
    let length = 0
    for (let index = 0; index < bytes.length; index++) {
      const byte = bytes[index] ?? 0
      if (byte === DOT && last === LF) {
        const next = bytes[index + 1]
        const mayEnd = next === CR && beforeLast === CR
        if (next === undefined || (mayEnd && index + 2 === bytes.length)) {
          pending = bytes.subarray(index)
          break
        }
        if (mayEnd && bytes[index + 2] === LF) {
          return { content: kept.subarray(0, length), rest: bytes.subarray(index + 3) }
        }
        // What is dropped is the first of two; the second is content.
        if (next === DOT) index += 1
      }
      kept[length++] = byte
      beforeLast = last
      last = byte
    }
    return { content: kept.subarray(0, length), rest: null }
  }

  return {
    add(chunk: Buffer): Unstuffed {
      const bytes = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
      pending = NOTHING
      const hasDots = bytes.includes(LF_DOT) || (last === LF && bytes[0] === DOT)
      if (hasDots) return read(bytes)
      beforeLast = bytes.at(-2) ?? last
      last = bytes.at(-1) ?? last
      return { content: bytes, rest: null }
    },
  }
}
