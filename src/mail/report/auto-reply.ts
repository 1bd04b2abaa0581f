/**
 * Answers of programs to a mail: vacation notes, challenges, receipts of help desks (RFC 3834).
 *
 * Pure. A bounce is judged before: Exim and others mark their bounces `auto-replied`, too.
 */
import { decodeWords } from './decode-text.ts'
import { headerOf } from './mail-tree.ts'
import type { MailPart } from './mail-tree.ts'
import type { ReportParts } from './report-parts.ts'
import { AUTO_REPLY_SUBJECT } from './wordings.ts'

/** Fields whose presence says it. */
const AUTO_REPLY_FIELDS = ['x-autoreply', 'x-autorespond', 'x-autoreply-from', 'x-mail-autoreply', 'x-auto-response']
// Values of Precedence that say it.
const AUTO_REPLY_PRECEDENCE = /^\s*(?:auto[-_ ]?repl(?:y|ied)|vacation)/i

export function isAutoReply(mail: MailPart, parts: ReportParts): boolean {
  const submitted = headerOf(mail, 'auto-submitted')
  const isAnswer = headerOf(mail, 'in-reply-to') !== ''
  return (
    /^auto-replied/i.test(submitted) ||
    (isAnswer && /^auto-generated/i.test(submitted)) ||
    AUTO_REPLY_FIELDS.some((name) => mail.headers.some((field) => field.name === name)) ||
    AUTO_REPLY_PRECEDENCE.test(headerOf(mail, 'precedence')) ||
    AUTO_REPLY_PRECEDENCE.test(headerOf(mail, 'x-precedence')) ||
    AUTO_REPLY_SUBJECT.test(decodeWords(headerOf(mail, 'subject'))) ||
    // A receipt that the mail was displayed or deleted (RFC 8098).
    parts.types.has('message/disposition-notification')
  )
}
