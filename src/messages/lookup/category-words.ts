/**
 * What a bounce category (mail/README.md "Categories") says in plain words, and what the sender can do about it. Pure
 * tables.
 */
import { BOUNCE_CATEGORY_NAMES, type BounceCategory } from '../../mail/reply/bounce-category.ts'

interface CategoryWords {
  /** Goes on from "The receiving server". */
  says: string
  /** null: nothing to do. */
  advice: string | null
}

const words = (says: string, advice: string | null = null): CategoryWords => ({ says, advice })

const REMOVE_ADDRESS = 'Remove the address from your lists.'
const ASK_RECIPIENT = 'Ask the recipient for another address or another way to reach them.'
const TAKE_OFF_LIST = 'If the address is there by mistake: DELETE /suppressions/{email} takes it off the list.'
const CHECK_DNS = 'Look at the records of the sending domain: POST /domains/{domain}/verify checks them.'
const CHECK_IP = 'The operator of this server looks at the reputation, the blocklists and the reverse name of the IP.'
const CHECK_CONTENT = 'Look at the content and its links, and at who asked for this mail.'

const CATEGORIES: Readonly<Record<BounceCategory, CategoryWords>> = {
  invalid_recipient: words('says that there is no such address', REMOVE_ADDRESS),
  bad_domain: words('cannot be found: the domain does not exist or takes no mail', REMOVE_ADDRESS),
  null_mx: words('takes no mail: the DNS of the domain says so', REMOVE_ADDRESS),
  inactive: words('says that the mailbox is disabled or closed', REMOVE_ADDRESS),
  moved: words('says that the recipient has another address now', ASK_RECIPIENT),
  bad_address_syntax: words('calls the address malformed', REMOVE_ADDRESS),
  mailbox_full: words('says that the mailbox is full'),
  too_large: words('says that the message is too large', 'Send a link in place of large attachments.'),
  expired: words('did not take the message within its lifetime', 'Send it again if it is still of use.'),
  dns: words('could not be found: the DNS did not answer'),
  no_answer: words('does not answer'),
  connection_lost: words('ended the connection in the middle'),
  loop: words('says that the mail goes in a circle', ASK_RECIPIENT),
  greylist: words('puts off first attempts on principle'),
  temporary: words('cannot take the message now'),
  system_error: words('has a fault of its own'),
  protocol: words('did not understand a command'),
  tls: words('offers no acceptable encryption'),
  rate: words('asks to slow down'),
  ip_block: words('refuses the IP it was sent from', CHECK_IP),
  no_ptr: words('finds no fitting reverse name of the IP', CHECK_IP),
  domain_block: words('refuses the sending domain', CHECK_DNS),
  auth_failed: words('is not satisfied with SPF, DKIM or DMARC', CHECK_DNS),
  spam_content: words('takes the content for spam', CHECK_CONTENT),
  virus: words('takes the content for malware', CHECK_CONTENT),
  attachment: words('refuses this kind of attachment', 'Send a link in place of the attachment.'),
  policy: words('refuses by a rule that it does not tell', CHECK_CONTENT),
  sender_refused: words('refuses the sender', CHECK_DNS),
  relay_denied: words('says that it is not responsible for the recipient', ASK_RECIPIENT),
  recipient_refused: words('takes no mail for this recipient from this sender, or from anybody', ASK_RECIPIENT),
  unknown: words('refused without a reason that is known'),
  ambiguous: words('ended the connection before it confirmed the message', 'It may have arrived nevertheless.'),
  suppressed: words('was not asked: the address is on the suppression list', TAKE_OFF_LIST),
}

/** Undefined for a category of another version. */
export function categoryWords(category: string): CategoryWords | undefined {
  const known = BOUNCE_CATEGORY_NAMES.find((name) => name === category)
  return known === undefined ? undefined : CATEGORIES[known]
}
