/**
 * Header fields that a customer gives, over HTTP or by SMTP submission: what is done with each (http/README.md
 * "Sending", inbound/README.md "Submission"). One list for both doors. Over HTTP each listed field is refused; a
 * submitted mail is whole already, so that there some are cut out, some must be of an allowed sender, the others stay.
 */

/**
 * `removed`: only a server may write it, or nobody may see it. `sender`: names somebody as the sender, so its domain
 * must be one that the key may send from. `kept`: part of a mail that is whole.
 */
type Submitted = 'removed' | 'sender' | 'kept'

const RULES: Readonly<Record<string, Submitted>> = {
  from: 'kept', // judged by itself
  to: 'kept',
  cc: 'kept',
  bcc: 'removed', // RFC 5322 §3.6.3
  sender: 'sender', // RFC 5322 §3.6.2
  'reply-to': 'kept',
  date: 'kept',
  subject: 'kept',
  'message-id': 'kept',
  'mime-version': 'kept',
  'dkim-signature': 'kept', // a foreign one says nothing about us
  'return-path': 'removed', // the last server writes it: RFC 5321 §4.4
  received: 'kept', // of the app's own host: RFC 5321 §4.4
  'delivered-to': 'removed', // a server that sees its own takes the mail for a loop
  'authentication-results': 'removed', // from an app it can only be forged: RFC 8601 §5
  'feedback-id': 'kept',
  'resent-from': 'sender', // RFC 5322 §3.6.6
  'resent-sender': 'sender',
  'resent-bcc': 'removed',
}
/** Fields by how their names begin. */
const BEGINNINGS: readonly (readonly [beginning: string, submitted: Submitted])[] = [
  ['content-', 'kept'],
  ['arc-', 'removed'], // RFC 8617 §4: of servers that pass a mail on
  ['list-unsubscribe', 'kept'], // a newsletter program's own
  ['cfbl-', 'kept'],
  ['x-service-', 'removed'],
  ['x-sternpost-', 'removed'],
  ['resent-', 'kept'],
]

/** Undefined: nobody minds. The name in lower case. */
export function headerRule(name: string): Submitted | undefined {
  const rule = Object.hasOwn(RULES, name) ? RULES[name] : undefined
  return rule ?? BEGINNINGS.find(([beginning]) => name.startsWith(beginning))?.[1]
}
