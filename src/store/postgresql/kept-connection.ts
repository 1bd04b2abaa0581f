/**
 * A connection to PostgreSQL that is made anew when it was lost. Nothing is sent twice: what was under way is answered
 * as lost, and what is asked while there is none as unreachable.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { openConnection, type Connection } from './connection.ts'
import type { WireAnswer, WireLine, WireRequest } from './wire-messages.ts'

const FIRST_PAUSE_MILLISECONDS = 100
const MOST_PAUSE_MILLISECONDS = 2_000
/** Others wait for what asks. */
const MOST_WAIT_MILLISECONDS = 1_000

export function keepConnected(url: string, line: WireLine) {
  let connection: Connection | undefined
  let connecting: Promise<Connection | undefined> | undefined
  let pause = FIRST_PAUSE_MILLISECONDS
  let problem = 'there was no connection yet'
  let timer: NodeJS.Timeout | undefined
  let isClosed = false
  let lastProcess: number | null = null

  const connect = (): Promise<Connection | undefined> => {
    connecting ??= openConnection({ url, line, lastProcess, onLost })
      .then(
        (opened) => {
          pause = FIRST_PAUSE_MILLISECONDS
          connection = opened
          lastProcess = opened.process
          return opened
        },
        (thrown: unknown) => {
          problem = thrown instanceof Error ? thrown.message : String(thrown)
          connectLater()
          return undefined
        },
      )
      .finally(() => (connecting = undefined))
    return connecting
  }
  const connectLater = (): void => {
    if (isClosed) return
    clearTimeout(timer)
    timer = setTimeout(() => void connect(), pause)
    pause = Math.min(2 * pause, MOST_PAUSE_MILLISECONDS)
  }
  const onLost = (reason: string): void => {
    connection = undefined
    problem = reason
    if (!isClosed) void connect()
  }

  /** A connection that is being made is waited for: a patient one as long as it takes. */
  const soon = (isPatient: boolean): Promise<Connection | undefined> | undefined => {
    if (isPatient) return connect()
    return connecting && Promise.race([connecting, sleep(MOST_WAIT_MILLISECONDS, undefined)])
  }

  return {
    async ask(request: Extract<WireRequest, { kind: 'ask' }>): Promise<WireAnswer> {
      const open = connection ?? (await soon(request.isPatient))
      if (open === undefined) return { id: request.id, kind: 'unreachable', message: problem }
      return open.ask(request)
    },
    async close(): Promise<void> {
      isClosed = true
      clearTimeout(timer)
      await connection?.close()
    },
  }
}
