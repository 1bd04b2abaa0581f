/**
 * An event stream that goes on behind the last event when its connection breaks (commands/README.md "sternpost
 * listen").
 *
 * Resolves when interrupted. Rejects when the first connection fails, when a later one is refused for good, and with
 * what `onEvent` throws.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import { readEventStream, type StreamEvent } from './event-stream.ts'
import { pause } from '../shared/until-interrupted.ts'

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
