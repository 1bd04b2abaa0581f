/**
 * SMTP submission by applications (RFC 6409; inbound/README.md "Submission"). A mail is answered with 250 and the ids
 * of its messages after they were committed.
 */
import type { SMTPServerSession } from 'smtp-server'
import { ServiceError } from '../../base/errors.ts'
import { parseAddress } from '../../mail/address.ts'
import type { MailRefusal } from '../../messages/accept/mail-refusal.ts'
import type { AcceptSubmission } from '../../messages/accept/send-request.ts'
import { createMessageReceiver } from '../receive-message.ts'
import { createSmtpDoor, type DoorParts, type SmtpDoor, type SmtpLimits } from '../smtp-door.ts'
import { smtpRefusal, refusalOf } from '../smtp-refusal.ts'
import { createLogIn, type Login, type LogInParts } from './log-in.ts'
import { messageFromMime } from './message-from-mime.ts'

export interface SubmissionServerOptions extends DoorParts, LogInParts {
  settings: DoorParts['settings'] &
    LogInParts['settings'] & { submission: { limits: SmtpLimits }; delivery: { allow_private_addresses: boolean } }
  acceptSubmission: AcceptSubmission
  mailRefusal: MailRefusal
}

/** Of all connections: enough for two of the largest mails at once, and for a thousand usual ones. */
const MEMORY_BYTES = 96 * 1024 * 1024

export function createSubmissionServer(options: SubmissionServerOptions): SmtpDoor {
  const { settings, acceptSubmission, logger, metrics } = options
  const { limits } = settings.submission
  const logIn = createLogIn(options)
  const policy = { allowReservedNames: settings.delivery.allow_private_addresses }

  async function submit(message: Buffer, session: SMTPServerSession): Promise<string[]> {
    const submitted = messageFromMime(message)
    if (!submitted.ok) throw new ServiceError('invalid_request', submitted.problem)
    const recipients = session.envelope.rcptTo.map(({ address }) => address)
    const { messageIds } = await acceptSubmission({ ...submitted.request, recipients }, loginOf(session).caller)
    return messageIds
  }

  return createSmtpDoor({
    ...options,
    setting: 'listen.submission',
    limits,
    badRecipient: { code: 553, text: '5.1.3 invalid_recipient: the recipient is not of the form <user@example.com>' },
    receive: createMessageReceiver({ keptBytes: limits.message, memoryBytes: MEMORY_BYTES }),
    logIn: (password, session) => logIn(password, session.remoteAddress),
    async onSender(session) {
      await loginOf(session).recheck()
      const refusal = await options.mailRefusal()
      if (refusal === null) return
      const [code, enhanced] = refusal.isStore === true ? [451, '4.3.0'] : [452, '4.3.1']
      throw smtpRefusal(code, `${enhanced} ${refusal.reason}, try again later`)
    },
    async onRecipient(address) {
      const parsed = parseAddress(address, policy)
      if (!parsed.ok) throw smtpRefusal(553, `5.1.3 invalid_recipient: ${parsed.problem}`)
    },
    onUnreceived({ message: reason }, session) {
      const { apiKeyId } = loginOf(session).caller
      logger.info({ remote_address: session.remoteAddress, api_key_id: apiKeyId, reason }, 'submission refused')
    },
    async onMessage({ bytes, sizeBytes }, session) {
      // While it came the key may have been revoked, or changed.
      await loginOf(session).recheck()
      const { apiKeyId } = loginOf(session).caller
      const facts = { remote_address: session.remoteAddress, bytes: sizeBytes, api_key_id: apiKeyId }
      try {
        const messageIds = await submit(bytes, session)
        return `2.0.0 queued as ${messageIds.join(' ')}`
      } catch (thrown) {
        if (!(thrown instanceof ServiceError)) throw thrown
        metrics.messagesRejected.inc({ code: thrown.code })
        logger.info({ ...facts, code: thrown.code, reason: thrown.details }, 'submission refused')
        throw refusalOf(thrown)
      }
    },
  })
}

/** smtp-server lets no mail begin before the login, and forgets it when TLS starts. */
function loginOf(session: SMTPServerSession): Login {
  const login: unknown = session.user
  if (isLogin(login)) return login
  throw smtpRefusal(530, '5.7.0 log in first')
}

function isLogin(value: unknown): value is Login {
  return typeof value === 'object' && value !== null && 'caller' in value && 'recheck' in value
}
