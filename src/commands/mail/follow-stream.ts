/**
 * An event stream that goes on behind the last event when its connection breaks (commands/README.md "sternpost
 * listen").
 *
 * Resolves when interrupted. Rejects when the first connection fails, when a later one is refused for good, and with
 * what `onEvent` throws.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import { pause } from '../shared/verb.ts'

interface FollowStreamOptions {
  clock: Clock
  /** `lastId`: of the newest event that was handled, or an empty text. */
  open: (lastId: string) => Promise<AsyncIterable<Uint8Array>>
  /** Once, when the first connection is there. */
  onOpen: () => void
  /** One at a time; the next one waits for it. */
  onEvent: (event: StreamEvent) => Promise<void>
  onBroken: (reason: string, waitMilliseconds: number) => void
  signal: AbortSignal
}

const FIRST_WAIT = SECOND
const LONGEST_WAIT = 15 * SECOND
/** A server that is not there, or that starts or stops. */
const PASSING: readonly number[] = [EXIT.unreachable, EXIT.tryAgain]

export async function followStream(options: FollowStreamOptions): Promise<void> {
  const { clock, open, onOpen, onEvent, onBroken, signal } = options
  let lastId = ''
  let wait = FIRST_WAIT
  let wasOpen = false
  const readOnce = async (): Promise<void> => {
    const stream = await open(lastId)
    if (!wasOpen) onOpen()
    wasOpen = true
    for await (const event of readEventStream(unlessBroken(stream))) {
      await onEvent(event)
      // A replayed event is an old one: what came before it must not come again. Ids are sorted by time.
      if (event.id > lastId) lastId = event.id
      wait = FIRST_WAIT
    }
  }
  while (!signal.aborted) {
    let reason = 'the server ended it'
    try {
      await readOnce()
    } catch (thrown) {
      const isPassing = wasOpen && thrown instanceof ProcessExit && PASSING.includes(thrown.exitCode)
      if (!signal.aborted && !isPassing) throw thrown
      reason = errorText(thrown)
    }
    if (signal.aborted) return
    onBroken(reason, wait)
    await pause(clock, wait, signal)
    wait = Math.min(2 * wait, LONGEST_WAIT)
  }
}

/** What ends a stream early is told apart from what goes wrong with an event. */
async function* unlessBroken(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* stream
  } catch (thrown) {
    throw new ProcessExit(EXIT.unreachable, errorText(thrown), { cause: thrown })
  }
}

export interface StreamEvent {
  /** The last `id` so far, or an empty text. */
  id: string
  kind: string
  data: string
}

const MOST_CHARACTERS = 1_048_576
const DEFAULT_KIND = 'message'
const BYTE_ORDER_MARK = '\u{feff}'

/**
 * Server-sent events out of a stream of bytes (HTML Standard, section 9.2.6, "Interpreting an event stream").
 *
 * Comments, empty events and unknown fields are skipped. Ends where the stream ends: an event without the empty line
 * behind it is not complete and not given. Throws when one has more than a MiB.
 */
export async function* readEventStream(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<StreamEvent> {
  let id = ''
  let kind = ''
  let data: string[] = []
  for await (const line of linesOf(pieces)) {
    if (line === '') {
      if (data.length > 0) yield { id, kind: kind === '' ? DEFAULT_KIND : kind, data: data.join('\n') }
      kind = ''
      data = []
      continue
    }
    // A field, and its value behind a colon and one blank; a line that begins with the colon is a comment.
    const [, field = '', value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? []
    if (field === 'id' && !value.includes('\0')) id = value
    else if (field === 'event') kind = value
    else if (field === 'data') data.push(value)
  }
}

async function* linesOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  let isStart = true
  for await (const piece of pieces) {
    rest += decoder.decode(piece, { stream: true })
    if (isStart && rest !== '') {
      if (rest.startsWith(BYTE_ORDER_MARK)) rest = rest.slice(1)
      isStart = false
    }
    // A CR at the very end may be half of a line end.
    const lines = rest.split(/\r\n|\n|\r(?!$)/)
    rest = lines.pop() ?? ''
    if (rest.length > MOST_CHARACTERS) throw new Error('an event of the stream has more than a MiB')
    yield* lines
  }
}
