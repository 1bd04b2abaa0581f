/**
 * Why a message is not delivered: the closed list of categories with what follows from each, and the category that an
 * enhanced status code stands for (mail/README.md "Categories" and "Codes"). Pure tables. RFC 3463, RFC 7372, RFC 7505,
 * IANA SMTP Enhanced Status Codes.
 */
import { DAY } from '../../base/clock.ts'
import type { BounceType } from './delivery-outcome.ts'
import type { ReportStage, SmtpReply } from './smtp-reply.ts'

export const BOUNCE_CATEGORY_NAMES = [
  'invalid_recipient', // no such address
  'bad_domain', // the domain does not exist or takes no mail
  'null_mx', // the domain says that it takes no mail (RFC 7505)
  'inactive', // the account is disabled or closed
  'moved', // the recipient is elsewhere now
  'bad_address_syntax', // the receiver calls the address malformed
  'mailbox_full', // over quota
  'too_large', // message larger than the receiver or the mailbox takes
  'expired', // lifetime over
  'dns', // names could not be resolved
  'no_answer', // no connection
  'connection_lost', // the connection ended in the dialogue
  'loop', // too many hops
  'greylist', // a first attempt is put off on principle
  'temporary', // a temporary refusal without a known reason
  'system_error', // the receiver has a fault
  'protocol', // commands were not understood
  'tls', // no acceptable encryption
  'rate', // too much at once
  'ip_block', // the egress IP is refused
  'no_ptr', // the egress IP has no fitting reverse name
  'domain_block', // the sending domain is refused
  'auth_failed', // SPF, DKIM or DMARC did not satisfy
  'spam_content', // the content is taken for spam
  'virus', // the content is taken for malware
  'attachment', // a kind of attachment is refused
  'policy', // a rule of the receiver, not told which
  'sender_refused', // the envelope sender is refused
  'relay_denied', // the server is not responsible for the recipient
  'recipient_refused', // the recipient takes no mail from this sender, or from all; the address may exist
  'unknown', // nothing matched
  'ambiguous', // the answer to the final dot was lost, twice
  'suppressed', // on the suppression list, never sent
] as const
export type BounceCategory = (typeof BOUNCE_CATEGORY_NAMES)[number]

/** What a permanent (5xx) reply of a category leads to while the lifetime lasts; a 4xx is always tried again. */
type OnPermanent =
  | 'end' // bounces at once
  | 'schedule' // as if it were a 4xx: only the lifetime ends it
  | { retries: number; overMilliseconds: number | null } // so many more attempts, spread over a time or on schedule

interface BounceCategoryFacts {
  type: BounceType
  onPermanent: OnPermanent
  /** The next attempt should leave from another IP. */
  changesIp: boolean
  /** `bounce_code` when the reply has no usable enhanced code. */
  defaultCode: string
}

const retries = (count: number, overMilliseconds: number | null = null): OnPermanent => ({
  retries: count,
  overMilliseconds,
})
const facts = (
  type: BounceType,
  defaultCode: string,
  onPermanent: OnPermanent,
  changesIp = false,
): BounceCategoryFacts => ({ type, defaultCode, onPermanent, changesIp })

export const BOUNCE_CATEGORIES: Readonly<Record<BounceCategory, BounceCategoryFacts>> = {
  invalid_recipient: facts('hard', '5.1.1', 'end'),
  bad_domain: facts('hard', '5.1.2', 'end'),
  null_mx: facts('hard', '5.1.10', 'end'),
  inactive: facts('hard', '5.2.1', 'end'),
  moved: facts('hard', '5.1.6', 'end'),
  bad_address_syntax: facts('hard', '5.1.3', 'end'),
  mailbox_full: facts('soft', '5.2.2', retries(3, DAY)),
  too_large: facts('soft', '5.3.4', 'end'),
  expired: facts('soft', '4.4.7', 'end'),
  dns: facts('soft', '4.4.3', 'schedule'),
  no_answer: facts('soft', '4.4.1', 'schedule'),
  connection_lost: facts('soft', '4.4.2', 'schedule'),
  loop: facts('soft', '5.4.6', 'end'),
  greylist: facts('soft', '4.7.1', 'schedule'),
  temporary: facts('soft', '4.3.0', 'schedule'),
  system_error: facts('soft', '4.3.0', retries(2)),
  protocol: facts('soft', '5.5.0', retries(1)),
  tls: facts('soft', '4.7.4', 'schedule'),
  rate: facts('block', '4.7.0', 'schedule'),
  ip_block: facts('block', '5.7.1', 'schedule', true),
  no_ptr: facts('block', '5.7.25', 'schedule', true),
  domain_block: facts('block', '5.7.1', retries(2)),
  auth_failed: facts('block', '5.7.26', retries(2)),
  spam_content: facts('block', '5.7.1', 'end'),
  virus: facts('block', '5.7.0', 'end'),
  attachment: facts('block', '5.7.0', 'end'),
  policy: facts('block', '5.7.0', 'end'),
  sender_refused: facts('block', '5.1.8', 'end'),
  relay_denied: facts('block', '5.7.1', 'end'),
  recipient_refused: facts('undetermined', '5.7.1', 'end'),
  unknown: facts('undetermined', '5.0.0', 'end'),
  ambiguous: facts('undetermined', '4.4.2', 'end'),
  suppressed: facts('suppressed', '5.7.1', 'end'),
}

/** Whole codes; tried before those that ignore the class. */
const BY_CODE: Readonly<Record<string, BounceCategory>> = {
  '5.7.515': 'auth_failed',
  '5.7.509': 'auth_failed',
  '5.7.606': 'ip_block',
  '5.7.511': 'ip_block',
  '4.7.28': 'rate',
  '4.7.650': 'rate',
  '4.2.1': 'temporary',
}

/** Subject and detail of the code, whatever its class. */
const BY_DETAIL: Readonly<Record<string, BounceCategory>> = {
  '1.1': 'invalid_recipient',
  '1.2': 'bad_domain',
  '1.3': 'bad_address_syntax',
  '1.6': 'moved',
  '1.7': 'sender_refused',
  '1.8': 'sender_refused',
  '1.10': 'null_mx',
  '2.2': 'mailbox_full',
  '2.3': 'too_large',
  '3.4': 'too_large',
  '3.0': 'system_error',
  '3.1': 'system_error',
  '3.2': 'system_error',
  '3.5': 'system_error',
  '4.1': 'no_answer',
  '4.2': 'connection_lost',
  '4.3': 'dns',
  '4.4': 'dns',
  '4.5': 'rate',
  '4.6': 'loop',
  '4.7': 'expired',
  '7.0': 'policy',
  '7.20': 'auth_failed',
  '7.21': 'auth_failed',
  '7.22': 'auth_failed',
  '7.23': 'auth_failed',
  '7.24': 'auth_failed',
  '7.26': 'auth_failed',
  '7.27': 'auth_failed',
  '7.25': 'no_ptr',
  '7.13': 'inactive',
  '7.17': 'inactive',
  '7.18': 'inactive',
  // Too many recipients: a request to come back, not a fault of the dialogue (delivery/README.md "Stages").
  '5.3': 'temporary',
}

/** Only the subject: what is left of X.5 and X.6. */
const BY_SUBJECT: Readonly<Record<string, BounceCategory>> = { '5': 'protocol', '6': 'policy' }

// A mailbox that gets too much, which 5.2.1 is also used for.
const OVERUSE = /\brate\b|too (?:many|much|quickly|fast|often)|over.?us|excessive/i
// Words for a mailbox without room, in a 552 without enhanced code.
const NO_ROOM = /quota|full|storage/i

/** The category that the codes of a reply stand for, or undefined. */
export function categoryOfCodes(reply: SmtpReply, stage: ReportStage): BounceCategory | undefined {
  const { code, enhancedCode, text } = reply
  if (enhancedCode === null) {
    if (code === 552) return NO_ROOM.test(text) ? 'mailbox_full' : 'too_large'
    return code === 551 ? 'moved' : undefined
  }
  const [, subject = '', detail = ''] = enhancedCode.split('.')
  const short = `${subject}.${detail}`
  if (enhancedCode === '5.2.1' && OVERUSE.test(text)) return 'rate'
  if (short === '1.0') return code === 550 && stage === 'rcpt' ? 'invalid_recipient' : undefined
  // After the data the recipient was accepted already: then it is a filter that speaks.
  if (short === '2.1') return stage === 'rcpt' ? (BY_CODE[enhancedCode] ?? 'inactive') : BY_CODE[enhancedCode]
  if (short === '7.1') return stage === 'rcpt' ? 'recipient_refused' : categoryOfRefusedMail(stage)
  return BY_CODE[enhancedCode] ?? BY_DETAIL[short] ?? BY_SUBJECT[subject]
}

/** X.7.1, delivery not authorized, where it is not about the recipient. */
function categoryOfRefusedMail(stage: ReportStage): BounceCategory | undefined {
  return stage === 'mail' || stage === 'data' || stage === 'dot' ? 'policy' : undefined
}
