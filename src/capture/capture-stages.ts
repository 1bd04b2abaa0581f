/**
 * Where the rules of `/dev/replies` change the dialogue. The library calls handlers of ours at connect, MAIL, RCPT and
 * after the message; EHLO, STARTTLS and DATA it answers itself, so its methods for these are put behind the rules on
 * each connection. A wait is in real time and ends when the server stops.
 */
import type { SMTPServer, SMTPServerSession } from 'smtp-server'
import type { CaptureReplies, Stage, StageActions } from './replies.ts'
import type { CaptureRefusal } from './simulation.ts'

export type CaptureStages = ReturnType<typeof createCaptureStages>

type Connection = SMTPServer['connections'] extends Set<infer Member> ? Member : never

/** What a session may not use, whatever the rules say: nobody logs in here. */
const ALWAYS_DISABLED = ['AUTH']

/** `server` is asked for when a connection is there; `replies` undefined: everything is as usual. */
export function createCaptureStages(server: () => SMTPServer, replies: CaptureReplies | undefined) {
  const waiting = new Set<() => void>()
  /** Resolves after so much real time, or when everything ends. */
  const wait = (milliseconds: number): Promise<void> =>
    new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer)
        waiting.delete(end)
        resolve()
      }
      const timer = setTimeout(end, milliseconds)
      waiting.add(end)
    })
  const connectionOf = ({ id }: SMTPServerSession): Connection | undefined =>
    [...server().connections].find((connection) => connection.id === id)
  /** Closes the connection without a word; stays open. */
  const cut = (session: SMTPServerSession): Promise<never> => {
    connectionOf(session)?._socket.destroy()
    return new Promise(() => {})
  }
  /** Draws the rules and waits as they say; null: as usual. */
  const endAt = async (stage: Stage, recipients: readonly string[]): Promise<StageActions['end']> => {
    if (replies === undefined) return null
    const { delayMilliseconds, end } = replies.actionsFor(stage, recipients)
    if (delayMilliseconds > 0) await wait(delayMilliseconds)
    return end
  }
  /** The same, but a rule that closes the connection does so, and the promise stays open. */
  async function refusalAt(
    stage: Stage,
    session: SMTPServerSession,
    recipients: readonly string[] = [],
  ): Promise<CaptureRefusal | null> {
    const end = await endAt(stage, recipients)
    return end?.kind === 'close' ? cut(session) : end
  }

  return {
    /** Puts the rules before what the library answers itself; to be called at connect. */
    guard(session: SMTPServerSession): void {
      const connection = connectionOf(session)
      if (replies === undefined || connection === undefined) return
      const { handler_EHLO, handler_HELO, handler_STARTTLS, handler_DATA } = connection
      const behind =
        (stage: Stage, answer: typeof handler_EHLO): typeof handler_EHLO =>
        (command, done) => {
          void refusalAt(stage, session, recipientsOf(session)).then((refusal) => {
            // The sender left meanwhile: the library has taken the connection apart, and would throw.
            if (connection._closed) return done()
            if (refusal === null) return answer.call(connection, command, done)
            connection.send(refusal.code, refusal.text)
            done()
          })
        }
      connection.handler_EHLO = behind('ehlo', (command, done) => {
        session.disabledCommands = replies.hidesStarttls() ? [...ALWAYS_DISABLED, 'STARTTLS'] : ALWAYS_DISABLED
        handler_EHLO.call(connection, command, done)
      })
      connection.handler_HELO = behind('ehlo', handler_HELO)
      connection.handler_STARTTLS = behind('starttls', handler_STARTTLS)
      connection.handler_DATA = behind('data', handler_DATA)
    },
    endAt,
    refusalAt,
    cut,
    wait,
    /** Ends all waiting. */
    close(): void {
      for (const end of waiting) end()
    },
  }
}

export function recipientsOf({ envelope }: SMTPServerSession): string[] {
  return envelope.rcptTo.map(({ address }) => address)
}
