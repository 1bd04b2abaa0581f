/**
 * What connections really do: the messages that were answered, and how long a transaction was under way, summed over
 * all connections.
 *
 * A connection works from the first command of a transaction (RSET, MAIL, RCPT, DATA) until every answer of it has come
 * back: also while a client that has its 354 holds the final dot back. It rests before the first, after the last, and
 * while it lies in a client's cache: Postfix keeps about as many of those as it uses. EHLO and QUIT are no work. The
 * client's own rest between two messages is not counted either, which is to the good of one that has its next envelope
 * not ready. It sees what the client sees and when: its commands as they leave it, the answers as they reach it.
 */

/** The dialogue of one connection, in pieces as they come. */
export interface ObservedConnection {
  /** By the client. */
  said(bytes: Buffer): void
  /** By the client, of the host. */
  heard(bytes: Buffer): void
  ended(): void
}

/** Since the last time somebody looked. */
export interface Work {
  /** Answers to final dots and to last chunks. */
  messages: number
  /** Of all connections together. */
  seconds: number
}

export interface WorkCount {
  connection(): ObservedConnection
  take(): Work
}

/** What an answer is waited for: the others are no part of a transaction. */
type Asked = 'envelope' | 'data' | 'dot' | 'other'

const ASKED: Partial<Record<string, Asked>> = { RSET: 'envelope', MAIL: 'envelope', RCPT: 'envelope', DATA: 'data' }
/** `250 ok`, and not `250-more`: the last line of an answer. */
const LAST_LINE = /^[0-9]{3}(?: |$)/
const START_INPUT = '354'
// The bytes behind the command belong to it.
const CHUNK = /^BDAT (\d+)/i

/** `now`: monotonic, in milliseconds. */
export function createWorkCount(now: () => number): WorkCount {
  let working = 0
  let messages = 0
  let milliseconds = 0
  let countedAt = now()

  function add(change: number): void {
    const time = now()
    milliseconds += working * (time - countedAt)
    countedAt = time
    working += change
  }

  return {
    connection() {
      const asked: Asked[] = []
      let isBody = false
      let isWorking = false

      function look(): void {
        const works = isBody || asked.some((what) => what !== 'other')
        if (works === isWorking) return
        isWorking = works
        add(works ? 1 : -1)
      }

      const said = linesOf((line) => {
        const chunk = isBody ? null : CHUNK.exec(line)
        if (chunk !== null) asked.push('dot')
        else if (!isBody) asked.push(ASKED[line.slice(0, 4).toUpperCase()] ?? 'other')
        else if (line === '.') {
          isBody = false
          asked.push('dot')
        }
        return Number(chunk?.[1] ?? 0)
      })
      const heard = linesOf((line) => {
        if (!LAST_LINE.test(line)) return 0
        const what = asked.shift()
        if (what === 'dot') messages++
        isBody ||= what === 'data' && line.startsWith(START_INPUT)
        return 0
      })
      return {
        said(bytes) {
          said(bytes)
          look()
        },
        heard(bytes) {
          heard(bytes)
          look()
        },
        ended() {
          isBody = false
          asked.length = 0
          look()
        },
      }
    },
    take() {
      add(0)
      const work = { messages, seconds: milliseconds / 1_000 }
      messages = 0
      milliseconds = 0
      return work
    },
  }
}

/** Whole lines of what comes in pieces, without their ends; `take` says how many bytes behind one are no lines. */
function linesOf(take: (line: string) => number): (bytes: Buffer) => void {
  let text = ''
  let skipped = 0
  return (bytes) => {
    text += bytes.toString('latin1')
    for (;;) {
      const passed = Math.min(skipped, text.length)
      skipped -= passed
      text = text.slice(passed)
      const end = skipped > 0 ? -1 : text.indexOf('\r\n')
      if (end < 0) return
      const line = text.slice(0, end)
      text = text.slice(end + 2)
      skipped = take(line)
    }
  }
}
