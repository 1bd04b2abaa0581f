/**
 * Why a message is not delivered: the closed list of categories with what follows from each, and the category that an
 * enhanced status code stands for (mail/README.md "Categories" and "Codes"). Pure tables. RFC 3463, RFC 7372, RFC 7505,
 * IANA SMTP Enhanced Status Codes.
 */
import { DAY } from '../../base/clock.ts'
import type { BounceType } from './delivery-outcome.ts'
import type { ReportStage, SmtpReply } from './smtp-reply.ts'

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

function retries(count: number, overMilliseconds: number | null = null): OnPermanent {
  return { retries: count, overMilliseconds }
}

function facts(
  type: BounceType,
  defaultCode: string,
  onPermanent: OnPermanent,
  changesIp = false,
): BounceCategoryFacts {
  return { type, defaultCode, onPermanent, changesIp }
}

const FACTS = {
  invalid_recipient: facts('hard', '5.1.1', 'end'), // no such address
  bad_domain: facts('hard', '5.1.2', 'end'), // the domain does not exist or takes no mail
  null_mx: facts('hard', '5.1.10', 'end'), // the domain says that it takes no mail (RFC 7505)
  inactive: facts('hard', '5.2.1', 'end'), // the account is disabled or closed
  moved: facts('hard', '5.1.6', 'end'), // the recipient is elsewhere now
  bad_address_syntax: facts('hard', '5.1.3', 'end'), // the receiver calls the address malformed
  mailbox_full: facts('soft', '5.2.2', retries(3, DAY)), // over quota
  too_large: facts('soft', '5.3.4', 'end'), // message larger than the receiver or the mailbox takes
  expired: facts('soft', '4.4.7', 'end'), // lifetime over
  dns: facts('soft', '4.4.3', 'schedule'), // names could not be resolved
  no_answer: facts('soft', '4.4.1', 'schedule'), // no connection
  connection_lost: facts('soft', '4.4.2', 'schedule'), // the connection ended in the dialogue
  loop: facts('soft', '5.4.6', 'end'), // too many hops
  greylist: facts('soft', '4.7.1', 'schedule'), // a first attempt is put off on principle
  temporary: facts('soft', '4.3.0', 'schedule'), // a temporary refusal without a known reason
  system_error: facts('soft', '4.3.0', retries(2)), // the receiver has a fault
  protocol: facts('soft', '5.5.0', retries(1)), // commands were not understood
  tls: facts('soft', '4.7.4', 'schedule'), // no acceptable encryption
  rate: facts('block', '4.7.0', 'schedule'), // too much at once
  ip_block: facts('block', '5.7.1', 'schedule', true), // the egress IP is refused
  no_ptr: facts('block', '5.7.25', 'schedule', true), // the egress IP has no fitting reverse name
  domain_block: facts('block', '5.7.1', retries(2)), // the sending domain is refused
  auth_failed: facts('block', '5.7.26', retries(2)), // SPF, DKIM or DMARC did not satisfy
  spam_content: facts('block', '5.7.1', 'end'), // the content is taken for spam
  virus: facts('block', '5.7.0', 'end'), // the content is taken for malware
  attachment: facts('block', '5.7.0', 'end'), // a kind of attachment is refused
  policy: facts('block', '5.7.0', 'end'), // a rule of the receiver, not told which
  sender_refused: facts('block', '5.1.8', 'end'), // the envelope sender is refused
  relay_denied: facts('block', '5.7.1', 'end'), // the server is not responsible for the recipient
  recipient_refused: facts('undetermined', '5.7.1', 'end'), // no mail from this sender, or from all; the address may exist
  unknown: facts('undetermined', '5.0.0', 'end'), // nothing matched
  ambiguous: facts('undetermined', '4.4.2', 'end'), // the answer to the final dot was lost, and no further try is made
  suppressed: facts('suppressed', '5.7.1', 'end'), // on the suppression list, never sent
}
export type BounceCategory = keyof typeof FACTS
export const BOUNCE_CATEGORIES: Readonly<Record<BounceCategory, BounceCategoryFacts>> = FACTS
export const BOUNCE_CATEGORY_NAMES = Object.keys(FACTS) as BounceCategory[]

/** Whole codes, which count first, and subject and detail of a code whatever its class. */
const BY_CODE: ReadonlyMap<string, BounceCategory> = codes({
  invalid_recipient: '1.1',
  bad_domain: '1.2',
  bad_address_syntax: '1.3',
  moved: '1.6',
  sender_refused: '1.7 1.8',
  null_mx: '1.10',
  mailbox_full: '2.2',
  too_large: '2.3 3.4',
  system_error: '3.0 3.1 3.2 3.5',
  no_answer: '4.1',
  connection_lost: '4.2',
  dns: '4.3 4.4',
  rate: '4.5 4.7.28 4.7.650',
  loop: '4.6',
  expired: '4.7',
  // 5.3, too many recipients: a request to come back, not a fault of the dialogue (delivery/README.md "Stages").
  temporary: '5.3 4.2.1',
  policy: '7.0 7.6 7.9',
  auth_failed: '7.20 7.21 7.22 7.23 7.24 7.26 7.27 5.7.515 5.7.509',
  no_ptr: '7.25',
  inactive: '7.13 7.17 7.18',
  ip_block: '5.7.606 5.7.511',
})

function codes(ofCategories: Partial<Record<BounceCategory, string>>): Map<string, BounceCategory> {
  return new Map(
    BOUNCE_CATEGORY_NAMES.flatMap((category) =>
      (ofCategories[category]?.split(' ') ?? []).map((code): [string, BounceCategory] => [code, category]),
    ),
  )
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
  const ofCode = BY_CODE.get(enhancedCode)
  if (enhancedCode === '5.2.1' && OVERUSE.test(text)) return 'rate'
  if (short === '1.0') return code === 550 && stage === 'rcpt' ? 'invalid_recipient' : undefined
  // After the data the recipient was accepted already: then it is a filter that speaks.
  if (short === '2.1') return stage === 'rcpt' ? (ofCode ?? 'inactive') : ofCode
  // Delivery not authorized, where it is not about the recipient.
  const refusedMail = stage === 'mail' || stage === 'data' || stage === 'dot' ? 'policy' : undefined
  if (short === '7.1') return stage === 'rcpt' ? 'recipient_refused' : refusedMail
  return ofCode ?? BY_CODE.get(short) ?? BY_SUBJECT[subject]
}
