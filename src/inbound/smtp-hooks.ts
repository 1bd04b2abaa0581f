/**
 * A door's decisions as the callbacks of smtp-server, with the settings that both doors share.
 *
 * A hook answers by resolving and refuses by throwing an SmtpRefusal. Whatever else it throws is a fault of ours: it is
 * logged and answered with a temporary failure (RFC 5321 §4.2.5).
 */
import type { SMTPServerOptions, SMTPServerSession } from 'smtp-server'
import { MINUTE } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { ReceivedMessage, ReceiveMessage } from './receive-message.ts'
import { isSmtpRefusal, temporaryFailure } from './smtp-refusal.ts'

export interface SmtpHooks {
  receive: ReceiveMessage
  /** null: there is no AUTH. Resolves with what `session.user` is then; never null. */
  logIn: ((password: string, session: SMTPServerSession) => Promise<object>) | null
  /** Before each mail; what it says in MAIL FROM does not matter to any door. */
  onSender?(session: SMTPServerSession): Promise<void>
  /** `address` has one @, or is `postmaster`; its domain may be in Unicode. */
  onRecipient(address: string, session: SMTPServerSession): Promise<void>
  /** Resolves, after the commit, with the text of the 250. */
  onMessage(message: ReceivedMessage, session: SMTPServerSession): Promise<string>
}

interface ServerOptionsParts {
  hostName: string
  limits: { message: number; recipients: number }
  hooks: SmtpHooks
  logger: Logger
}

const MOST_COMMAND_BYTES = 4_096
const IDLE_MILLISECONDS = MINUTE

/** `afterMessage` is called when a message has been answered, well or ill. */
export function serverOptions(parts: ServerOptionsParts, afterMessage: () => void): SMTPServerOptions {
  const { hostName, limits, hooks, logger } = parts
  const { logIn, onSender, onRecipient, onMessage, receive } = hooks
  const refusalFor = (thrown: unknown): Error => {
    if (isSmtpRefusal(thrown)) return thrown
    logger.error({ err: thrown }, 'smtp command failed')
    return temporaryFailure(thrown)
  }
  return {
    name: hostName,
    heloResponse: '%s',
    size: limits.message,
    maxRecipients: limits.recipients,
    maxCommandLength: MOST_COMMAND_BYTES,
    socketTimeout: IDLE_MILLISECONDS,
    disableReverseLookup: true,
    logger: false,
    authMethods: ['PLAIN', 'LOGIN'],
    authOptional: logIn === null,
    authRequiredMessage: '5.7.0 log in first',
    // Else 538: where AUTH is not allowed the dialogue answers itself.
    allowInsecureAuth: true,
    onAuth({ password }, session, answer) {
      if (logIn === null) return answer(new Error('there is no login'))
      logIn(password ?? '', session).then(
        (user) => answer(null, { user }),
        (thrown: unknown) => answer(refusalFor(thrown)),
      )
    },
    onMailFrom(_address, session, answer) {
      settle(onSender?.(session) ?? Promise.resolve(), answer, refusalFor)
    },
    onRcptTo({ address }, session, answer) {
      settle(onRecipient(address, session), answer, refusalFor)
    },
    onData(stream, session, answer) {
      receive(stream, (message) => onMessage(message, session))
        .then(
          (text) => answer(null, text),
          (thrown: unknown) => answer(refusalFor(thrown)),
        )
        .finally(afterMessage)
    },
  }
}

function settle(work: Promise<void>, answer: (refusal?: Error) => void, refusalFor: (thrown: unknown) => Error): void {
  work.then(
    () => answer(),
    (thrown: unknown) => answer(refusalFor(thrown)),
  )
}
