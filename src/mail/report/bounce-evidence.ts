/**
 * Whether a mail without delivery status fields is a bounce at all, and whether it is the last word; or else an
 * automatic answer. Several signs have to agree, since people write about bounces, too: who wrote it, to whom an answer
 * would go, the subject, and what the text says. Pure.
 */
import { decodeWords } from './decode-text.ts'
import { headerOf, type MailPart } from './mail-tree.ts'
import type { ReportAction } from './report-reading.ts'
import { replyCodeIn } from './report-diagnostic.ts'
import type { ReportParts } from './report-parts.ts'
import {
  ANSWER_SUBJECT,
  anyOf,
  AUTO_REPLY_SUBJECT,
  BOUNCE_SENTENCE,
  BOUNCE_SUBJECT,
  DAEMON_NAME,
  FINAL_SENTENCE,
  PROGRAM_NAME,
  REJECTED_BY_FILTER,
  SUCCESS_SENTENCE,
  WAITING_SENTENCE,
  WAITING_SUBJECT,
} from './wordings.ts'

/** RFC 8098. */
const RECEIPT = 'message/disposition-notification'
/** What the signs have to add up to. */
const ENOUGH = 3
const CERTAIN = 4
/** Reports come to the point at their start. */
const EVIDENCE_CHARACTERS = 8_192

/** strong: a bounce or a notice. weak: one, unless it calls itself an automatic answer. */
export function bounceEvidence(mail: MailPart, parts: ReportParts): 'strong' | 'weak' | 'none' {
  const text = parts.text.slice(0, EVIDENCE_CHARACTERS)
  const isReturned = parts.returned !== null
  const hasCode = replyCodeIn(text) !== null
  const isFromServer = isOfProgram(mail, isReturned)
  const hasStructure = hasReportStructure(mail, parts)
  // A filter of the mailbox that sends mail back writes a receipt (RFC 5429 §2.2.2).
  if (parts.types.has(RECEIPT) && REJECTED_BY_FILTER.test(text)) return 'strong'
  // A note about a mail that arrived, which the server signs (RFC 5436 §2.7.1).
  if (/^auto-notified/i.test(headerOf(mail, 'auto-submitted'))) return 'none'
  // An answer has the subject of the mail that it answers, and its three digits may be those of a telephone.
  if (isAnswerByItsWords(mail, parts) && !hasStructure && !isOfServer(mail, parts, text)) return 'none'
  if (isOfPerson(mail, parts)) return 'none'
  const told = [
    hasStructure ? 3 : 0,
    BOUNCE_SUBJECT.test(subjectOf(mail)) ? 2 : 0,
    BOUNCE_SENTENCE.test(text) ? 1 : 0,
    // In whatever language: a refusal, and the message that was refused.
    isFromServer && isReturned && hasCode ? 1 : 0,
  ]
  const hinted = [isFromDaemon(mail) ? 2 : 0, isNullSender(mail) ? 1 : 0, hasCode ? 1 : 0]
  const weight = [...told, ...hinted].reduce((sum, count) => sum + count, 0)
  // Hints alone are no bounce: servers write about other things, too.
  if (told.every((count) => count === 0) || weight < ENOUGH) return 'none'
  return weight >= CERTAIN ? 'strong' : 'weak'
}

/** Whether what the prose has of a report may be of another one, which it quotes. */
export function mayQuote(mail: MailPart, parts: ReportParts): boolean {
  return (isAnswer(mail, parts) && !hasReportStructure(mail, parts)) || isOfPerson(mail, parts)
}

/** A mailbox answers, by a program or not: what it quotes and has attached is the mail that it answers, or another. */
export function isAnswer(mail: MailPart, parts: ReportParts): boolean {
  return isReply(mail) || (isAnswerByItsWords(mail, parts) && !isFromDaemon(mail))
}

function isAnswerByItsWords(mail: MailPart, parts: ReportParts): boolean {
  return isAutoReply(mail, parts) || ANSWER_SUBJECT.test(subjectOf(mail))
}

/** A person who answers, or who asks about a bounce, unless it is passed on as a whole. */
function isOfPerson(mail: MailPart, parts: ReportParts): boolean {
  const isReturned = parts.returned !== null
  const isQuestion = !isReturned && !isOfProgram(mail, isReturned)
  return (isReply(mail) || isQuestion) && !hasReportStructure(mail, parts)
}

/** Servers write the same field. */
function isReply(mail: MailPart): boolean {
  return headerOf(mail, 'in-reply-to') !== '' && !isFromDaemon(mail)
}

function isOfProgram(mail: MailPart, isReturned: boolean): boolean {
  // RFC 3834 §5.
  const isAutomatic = /^auto-/i.test(headerOf(mail, 'auto-submitted'))
  const isProgram = isReturned && PROGRAM_NAME.test(headerOf(mail, 'from'))
  return isFromDaemon(mail) || isNullSender(mail) || isAutomatic || isProgram
}

/** What a report in prose says of its recipients. */
export function proseAction(mail: MailPart, parts: ReportParts): ReportAction {
  const text = parts.text.slice(0, EVIDENCE_CHARACTERS)
  const subject = subjectOf(mail)
  if (FINAL_SENTENCE.test(text)) return 'failed'
  if (WAITING_SUBJECT.test(subject) || WAITING_SENTENCE.test(text)) return 'delayed'
  return SUCCESS_SENTENCE.test(subject) || SUCCESS_SENTENCE.test(text) ? 'delivered' : 'failed'
}

function subjectOf(mail: MailPart): string {
  return decodeWords(headerOf(mail, 'subject'))
}

function hasReportStructure(mail: MailPart, parts: ReportParts): boolean {
  return (
    headerOf(mail, 'x-failed-recipients') !== '' ||
    parts.statuses.length > 0 ||
    mail.parameters.get('report-type')?.toLowerCase() === 'delivery-status'
  )
}

// A refusal as a server writes it: words behind the code. Behind an area code come digits.
const REFUSAL_LINE = /(?:^|said:)[\t >]{0,9}5\d\d[- ](?:5\.\d{1,3}\.\d{1,3} )?\p{L}/mu
// An enhanced code as a server writes it: behind its reply code, a number sign or a label, or in brackets. Three numbers
// alone are a date, a version or a section.
const SERVER_CODE = anyOf([
  /\b([45])[0-5]\d[- ]#?\1\.[0-7]\.\d{1,3}(?![\w-]|\.\d)|#[45]\.[0-7]\.\d{1,3}(?![\w-]|\.\d)/,
  /\b(?:said|status|code|error|dsn)[:=]? {0,9}[45]\.[0-7]\.(?:[01]?\d|\d{3})(?![\w-]|\.\d)|[([][45]\.[0-7]\.\d[)\]]/,
])

/** What an answer of a mailbox does not have: the name of a server, codes of a refusal, the message as an attachment. */
function isOfServer(mail: MailPart, { types }: ReportParts, text: string): boolean {
  const isAttached = !types.has(RECEIPT) && [...types].some((type) => type.includes('rfc822'))
  return isFromDaemon(mail) || isAttached || SERVER_CODE.test(text) || REFUSAL_LINE.test(text)
}

function isFromDaemon(mail: MailPart): boolean {
  const from = decodeWords(headerOf(mail, 'from'))
  // An author without an address, as some servers write for the null sender.
  return DAEMON_NAME.test(from) || DAEMON_NAME.test(headerOf(mail, 'return-path')) || /<>\s{0,9}$/.test(from)
}

/** RFC 5321 §4.5.5: reports have no sender to answer to. */
function isNullSender(mail: MailPart): boolean {
  return mail.headers.some(({ name, value }) => name === 'return-path' && (value === '' || /^<\s{0,9}>/.test(value)))
}

/** Fields whose presence says that a program answered. */
const AUTO_REPLY_FIELDS = ['x-autoreply', 'x-autorespond', 'x-autoreply-from', 'x-mail-autoreply', 'x-auto-response']
// Values of Precedence that say it.
const AUTO_REPLY_PRECEDENCE = /^\s*(?:auto[-_ ]?repl(?:y|ied)|vacation)/i

/**
 * Answers of programs to a mail: vacation notes, challenges, receipts of help desks (RFC 3834). A bounce is judged
 * before: Exim and others mark their bounces `auto-replied`, too.
 */
export function isAutoReply(mail: MailPart, parts: ReportParts): boolean {
  const submitted = headerOf(mail, 'auto-submitted')
  const isAnswer = headerOf(mail, 'in-reply-to') !== ''
  return (
    /^auto-(?:replied|notified)/i.test(submitted) ||
    (isAnswer && /^auto-generated/i.test(submitted)) ||
    AUTO_REPLY_FIELDS.some((name) => mail.headers.some((field) => field.name === name)) ||
    AUTO_REPLY_PRECEDENCE.test(headerOf(mail, 'precedence')) ||
    AUTO_REPLY_PRECEDENCE.test(headerOf(mail, 'x-precedence')) ||
    AUTO_REPLY_SUBJECT.test(subjectOf(mail)) ||
    // A receipt that the mail was displayed or deleted (RFC 8098).
    parts.types.has(RECEIPT)
  )
}
