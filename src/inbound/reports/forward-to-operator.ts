/**
 * Mail for postmaster and abuse goes on to the operator, as an attachment of a mail of our own (RFC 5321 §4.5.1;
 * inbound/README.md "Reports"). What cannot go on is dropped. Rejects when acceptance refuses it for the moment, so that
 * the sender tries again.
 */
import { createHash } from 'node:crypto'
import { HOUR, type Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { createRateLimit } from '../../base/rate-limit.ts'
import { ADMINISTRATOR, OWN_MAIL, type AcceptSubmission } from '../../messages/accept/send-request.ts'

export interface ForwardParts {
  settings: { hostname: string; operator: { email: string | null } }
  acceptSubmission: AcceptSubmission
  clock: Clock
}

export interface MailForOperator {
  sender: string
  recipient: string
  remoteAddress: string
  /** What was kept of it. */
  bytes: Uint8Array
  sizeBytes: number
}

/** Why it was dropped, or `forwarded`. */
type ForwardResult = 'forwarded' | 'no-operator' | 'too-many' | 'own-mail' | 'suppressed' | 'refused'

const MOST_PER_HOUR = 20
/** Marks what we forwarded: an operator whose mailbox leads back to us makes no circle. */
const MARK = 'X-Sternpost-Forwarded'
const MARK_WITHIN_BYTES = 64 * 1024

export function createOperatorForward({
  settings,
  acceptSubmission,
  clock,
}: ForwardParts): (mail: MailForOperator) => Promise<ForwardResult> {
  const { hostname, operator } = settings
  const limit = createRateLimit({ clock, count: MOST_PER_HOUR, perMilliseconds: HOUR, burst: MOST_PER_HOUR })
  return async (mail) => {
    if (operator.email === null) return 'no-operator'
    const head = Buffer.from(mail.bytes.subarray(0, MARK_WITHIN_BYTES)).toString('latin1')
    if (head.includes(MARK)) return 'own-mail'
    if (limit.take('operator') > 0) return 'too-many'
    const digest = createHash('sha256').update(mail.bytes).digest('hex')
    const subject = `Mail for ${shown(mail.recipient)}`
    const addresses = [`From: "Sternpost" <postmaster@${hostname}>`, `To: <${operator.email}>`]
    const header = [...addresses, `Subject: ${subject}`, 'Auto-Submitted: auto-generated', `${MARK}: ${hostname}`]
    const request = {
      recipients: [operator.email],
      from: `postmaster@${hostname}`,
      subject,
      raw: messageFor(mail, header, `operator-${digest.slice(0, 32)}`),
      ...OWN_MAIL,
      idempotencyKey: `operator ${digest}`,
    }
    try {
      const { suppressed } = await acceptSubmission(request, ADMINISTRATOR)
      return suppressed.length > 0 ? 'suppressed' : 'forwarded'
    } catch (thrown) {
      // Trying again helps only where it is for the moment: then it is one of the hour when it comes again.
      if (thrown instanceof ServiceError && !isForNow(thrown)) return 'refused'
      limit.giveBack('operator', 1)
      throw thrown
    }
  }
}

/** Our fault, or a refusal that says when to come again: no IP may send it yet, the rate, the same mail under way. */
function isForNow({ code, headers }: ServiceError): boolean {
  return code === 'unavailable' || code === 'internal_error' || headers['Retry-After'] !== undefined
}

function messageFor(mail: MailForOperator, header: readonly string[], boundary: string): Buffer {
  const kept = mail.bytes.length
  const attached = kept === mail.sizeBytes ? 'The mail is' : `Of its ${mail.sizeBytes} bytes the first ${kept} are`
  return Buffer.from(
    [
      ...header,
      'MIME-Version: 1.0',
      `Content-Type: multipart/mixed; boundary="${boundary}"`,
      '',
      `--${boundary}`,
      'Content-Type: text/plain; charset=us-ascii',
      '',
      `${shown(mail.sender)} wrote to ${shown(mail.recipient)},`,
      `from the address ${mail.remoteAddress}. ${attached} attached.`,
      '',
      `--${boundary}`,
      'Content-Type: application/octet-stream; name="mail.eml"',
      'Content-Disposition: attachment; filename="mail.eml"',
      'Content-Transfer-Encoding: base64',
      '',
      // Lines of 76 characters (RFC 2045 §6.8), and what is left.
      ...(Buffer.from(mail.bytes)
        .toString('base64')
        .match(/.{1,76}/g) ?? []),
      `--${boundary}--`,
      '',
    ].join('\r\n'),
  )
}

/** An address as it was on the wire, safe in a header. */
function shown(address: string): string {
  // Everything but printable ASCII.
  return address === '' ? '<>' : address.replace(/[^!-~]+/g, '?').slice(0, 254)
}
