/**
 * A connection to PostgreSQL that is made anew when it was lost. Nothing is sent twice: what was under way is answered
 * as lost, and what is asked while there is none as unreachable. A server that is silent for too long is lost too.
 */
import { openConnection, TAKEN, type Connection, type ConnectionOptions } from './connection.ts'
import type { WireQuestion, WireResult } from './wire-messages.ts'

const FIRST_PAUSE_MILLISECONDS = 100
const MOST_PAUSE_MILLISECONDS = 2_000
const LOOK_EVERY_MILLISECONDS = 250
/** A connection that was lost is waited for so long: others wait for what asks. Then it is a problem. */
const GRACE_MILLISECONDS = 1_000
/**
 * A server that says nothing for so long is a problem: it speaks behind 16 statements at most, and before a commit
 * (statement-flight.ts), so that the writes of a slow disk and its commit are no single silence.
 */
const SLOW_MILLISECONDS = 3_000
/** And for so long is lost: the network may have swallowed it. */
const SILENT_MILLISECONDS = 10_000

interface KeptOptions extends Omit<ConnectionOptions, 'mayBeStandby' | 'onLost'> {
  /** Why it does not answer; null: it does. Told when it changes. */
  onProblem?: (problem: string | null) => void
}

export function keepConnected({ onProblem = () => {}, ...options }: KeptOptions) {
  let connection: Connection | undefined
  let connecting: Promise<Connection | undefined> | undefined
  let session = 0
  /** Of the connection: it was found as it was left. */
  let isAsLeft = false
  /** Another process works in the place of this one, which had lost its connection. */
  let isReplaced = false
  let pause = FIRST_PAUSE_MILLISECONDS
  let timer: NodeJS.Timeout | undefined
  let isClosed = false
  const absence = createAbsence(onProblem)

  const connect = (): Promise<Connection | undefined> => {
    clearTimeout(timer)
    connecting ??= openConnection({ ...options, onLost })
      .then(opened, (thrown: unknown) => {
        absence.fail(thrown)
        isReplaced ||= session > 0 && absence.reason().code === TAKEN
        if (isReplaced) absence.end()
        connectLater()
        return undefined
      })
      .finally(() => (connecting = undefined))
    return connecting
  }
  const opened = (made: Connection): Connection => {
    pause = FIRST_PAUSE_MILLISECONDS
    connection = made
    session += 1
    isAsLeft = false
    absence.end()
    if (isClosed) void made.close()
    return made
  }
  const connectLater = (): void => {
    if (isClosed) return
    timer = setTimeout(() => void connect(), pause)
    pause = Math.min(2 * pause, MOST_PAUSE_MILLISECONDS)
  }
  const onLost = (reason: string): void => {
    connection = undefined
    absence.begin(reason)
    if (!isClosed) void connect()
  }
  const looking = setInterval(() => absence.look(connection, isReplaced), LOOK_EVERY_MILLISECONDS)

  /** The first connection is waited for as long as it takes, and any by who is patient; another one for the grace. */
  const soon = async (isPatient: boolean): Promise<Connection | undefined> => {
    if (isPatient || session === 0) return connect()
    await absence.waited()
    return connection
  }

  return {
    async ask(question: WireQuestion): Promise<WireResult & { session?: number }> {
      const { session: granted, lastCommit } = question
      const mayWait = granted === null && !isReplaced
      const open = connection ?? (mayWait ? await soon(question.isPatient) : undefined)
      if (isReplaced) return CHANGED
      const isGone = granted !== null && granted !== session
      if (open === undefined || isGone) return { kind: 'unreachable', ...absence.reason() }
      if (lastCommit !== null && !isAsLeft && open.lastCommit !== lastCommit) return CHANGED
      isAsLeft = true
      const asked = session
      const answer = await open.ask(question)
      return answer.kind === 'lost' ? answer : { ...answer, session: asked }
    },
    drop: () => connection?.drop('its answer took too long'),
    async close(): Promise<void> {
      isClosed = true
      clearTimeout(timer)
      clearInterval(looking)
      absence.end()
      await connection?.close()
    },
  }
}

const CHANGED: WireResult = {
  kind: 'changed',
  code: '',
  message: 'the database is not as it was left: somebody else changed it, or it is an older copy',
}

type Reason = { code: string; message: string }

/** Since when there is no connection, and why; tells when that, or a silence, has lasted too long. */
function createAbsence(onProblem: (problem: string | null) => void) {
  let reason: Reason = { code: '', message: 'there was no connection yet' }
  /** The first one is waited for as long as it takes. */
  let since = Infinity
  let problem: string | null = null
  /** Over with the absence, or with its grace: one for all who wait. */
  let wait = Promise.withResolvers<void>()
  let timer: NodeJS.Timeout | undefined
  const graceLeft = (): number => since + GRACE_MILLISECONDS - performance.now()
  const tell = (found: string | null): void => {
    if (found !== problem) onProblem(found)
    problem = found
  }
  return {
    reason: () => reason,
    begin(message: string): void {
      reason = { code: '', message }
      since = performance.now()
      wait = Promise.withResolvers()
      timer = setTimeout(wait.resolve, GRACE_MILLISECONDS)
    },
    /** It is over, or nobody is to wait for that any more. */
    end(): void {
      clearTimeout(timer)
      wait.resolve()
    },
    waited: () => wait.promise,
    /** Another try failed. */
    fail(thrown: unknown): void {
      const { code = '', message } = thrown as Partial<Reason>
      // Of several addresses that were tried there is a code alone.
      reason = { code, message: message || code }
    },
    look(connection: Connection | undefined, isReplaced: boolean): void {
      // Who asks then hears of it.
      if (isReplaced) return tell(null)
      if (connection === undefined) return graceLeft() > 0 ? undefined : tell(reason.message)
      const silence = connection.silence()
      tell(silence > SLOW_MILLISECONDS ? 'the server is silent' : null)
      if (silence > SILENT_MILLISECONDS) connection.drop('the server was silent for too long')
    },
  }
}
