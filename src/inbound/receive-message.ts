/**
 * Reads one message from the wire: to its end, keeping no more than wanted, and judging every byte (inbound/README.md
 * "End of data"). Refuses after the end of data what is too large (552), has a bad line end (554), or finds no memory
 * (452). RFC 5321 §2.3.8, §4.1.1.4.
 */
import type { SMTPServerDataStream } from 'smtp-server'
import { createGrowingBuffer } from '../base/growing-buffer.ts'
import { smtpRefusal } from './smtp-refusal.ts'

export interface ReceivedMessage {
  /** The first bytes, dot-stuffing undone; all of them when there are no more. */
  bytes: Buffer
  sizeBytes: number
}

/** The memory of the message is free again when `handle` has settled. */
export type ReceiveMessage = <Result>(
  stream: SMTPServerDataStream,
  handle: (message: ReceivedMessage) => Promise<Result>,
) => Promise<Result>

const NUL = 0x00
const LF = 0x0a
const CR = 0x0d

/**
 * `keptBytes` of one message: what is beyond is read, judged and forgotten. `memoryBytes` of all messages that are
 * being received or handled.
 */
export function createMessageReceiver(limits: { keptBytes: number; memoryBytes: number }): ReceiveMessage {
  let freeBytes = limits.memoryBytes
  return async (stream, handle) => {
    let takenBytes = 0
    const giveBack = (): void => {
      freeBytes += takenBytes
      takenBytes = 0
    }
    const kept = createGrowingBuffer(limits.keptBytes, (more) => {
      if (more > freeBytes) return false
      freeBytes -= more
      takenBytes += more
      return true
    })
    try {
      const lineEnds = createLineEndCheck()
      let sizeBytes = 0
      try {
        for await (const chunk of stream as AsyncIterable<Buffer>) {
          sizeBytes += chunk.length
          lineEnds.add(chunk)
          if (!stream.sizeExceeded && lineEnds.problem() === null) kept.add(chunk)
          // It will be refused: others can have its memory while the rest of it is read.
          if (kept.isFull()) giveBack()
        }
      } catch {
        // The client left in the middle of its message: nobody is there to read the answer.
        throw smtpRefusal(451, '4.4.2 the connection was lost')
      }
      if (stream.sizeExceeded) throw smtpRefusal(552, '5.3.4 the message is too large')
      const problem = lineEnds.problem() ?? lineEnds.openProblem()
      if (problem !== null) {
        const fix = 'end lines with CR LF, or encode the body as quoted-printable or base64'
        throw smtpRefusal(554, `5.6.0 ${problem}: ${fix}`)
      }
      if (kept.isFull()) throw smtpRefusal(452, '4.3.1 too many messages at once, try again in a moment')
      return await handle({ bytes: kept.bytes(), sizeBytes })
    } finally {
      giveBack()
    }
  }
}

/** Problems are sentences. */
function createLineEndCheck() {
  let previous = 0
  let line = 1
  let problem: string | null = null
  const inLine = (what: string): string => `line ${line} of the message has a ${what}`
  return {
    add(chunk: Buffer): void {
      if (problem !== null) return
      for (let index = 0; index < chunk.length; index++) {
        const byte = chunk[index] ?? NUL
        // CR and LF come as a pair or not at all.
        if (byte === NUL || (byte === LF) !== (previous === CR)) {
          problem = inLine(previous === CR ? 'bare CR' : byte === LF ? 'bare LF' : 'NUL')
          return
        }
        if (byte === LF) line++
        previous = byte
      }
    },
    problem: () => problem,
    /** It ends with a CR that no LF follows. */
    openProblem: () => (previous === CR ? inLine('bare CR') : null),
  }
}
