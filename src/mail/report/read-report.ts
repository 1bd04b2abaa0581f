/**
 * Reads a mail that came back: a bounce, a notice, an automatic answer, a complaint, or none of them (mail/README.md
 * "Reading a report"). What it finds is only what the mail claims; whether to believe it is decided elsewhere
 * (inbound/README.md "Whose mail a report is about"). Pure. Never throws, whatever the bytes, and takes time linear in
 * the first MiB; the rest is not read.
 */
import { bounceEvidence, isAnswer, isAutoReply, mayQuote, proseAction } from './bounce-evidence.ts'
import { holdsDeliveryStatus, isMailbox, readDeliveryStatus, withoutStatusFields } from './delivery-status.ts'
import { findFailedAddresses, readProseAbout } from './unstructured-bounce.ts'
import { findAddresses } from './find-addresses.ts'
import { readFeedbackReport } from './feedback-report.ts'
import { readMailTree, type MailPart } from './mail-tree.ts'
import { factsIn, proseDiagnostic, replyCodeIn, stageIn, statedStatus, vagueness } from './report-diagnostic.ts'
import { gatherReportParts, isReportType, type ReportParts } from './report-parts.ts'
import type { ReportedRecipient, ReportKind, ReportReading } from './report-reading.ts'
import type { ReportStage } from '../reply/smtp-reply.ts'
import { readServiceNotification } from './service-notification.ts'
import { EXPIRED_SENTENCE } from './wordings.ts'

const MESSAGE_TYPE = /^message\/(?:rfc822|global)$/
const GENERATED_FROM = /\((?:ultimately )?generated from ([^()\s]{1,320})\)/i
// A name of X.400 or Exchange, or the path of a file.
const FOREIGN_NAME = /^(?:x-?400|ex|notes)\s*[:;]|^\/|\/(?:o|ou|cn|g|s|prmd)=/i

/** `sender` is that of the envelope, where the mail comes from the wire and no server has written it down yet. */
export function readReport(bytes: Uint8Array, sender?: string): ReportReading {
  const mail = readMailTree(bytes)
  return readMail(wrappedReport(mail) ?? (sender === undefined ? mail : withReturnPath(mail, sender)))
}

/** RFC 5321 §4.4: what the server at the end of the road writes. */
function withReturnPath(mail: MailPart, sender: string): MailPart {
  return { ...mail, headers: [{ name: 'return-path', value: `<${sender}>` }, ...mail.headers] }
}

/** A report that a gateway or a person passed on as a whole, also more than once; nothing that an answer returns. */
function wrappedReport(mail: MailPart): MailPart | undefined {
  const attached = MESSAGE_TYPE.test(mail.type) ? [mail] : mail.parts.filter(({ type }) => MESSAGE_TYPE.test(type))
  const messages = attached.flatMap(({ parts }) => parts)
  if (messages.length === 0 || isReport(mail) || isAnswer(mail, gatherReportParts(mail))) return undefined
  return messages.map((message) => (isReport(message) ? message : wrappedReport(message))).find(Boolean)
}

function isReport(mail: MailPart): boolean {
  return mail.parts.some((part) => isReportType(part.type))
}

function readMail(mail: MailPart): ReportReading {
  const parts = gatherReportParts(mail)
  const feedback = readFeedbackReport(parts, mail)
  if (feedback !== undefined) {
    const { originalEnvelopeId, returned, ...complaint } = feedback
    return { ...emptyReading({ ...parts, returned }, originalEnvelopeId), ...complaint }
  }
  const notification = mayQuote(mail, parts) ? undefined : readServiceNotification(parts.text)
  if (notification !== undefined) return { ...emptyReading(parts, null), ...notification }
  const status = readDeliveryStatus(statusText(mail, parts))
  const reading = emptyReading(parts, status.originalEnvelopeId)
  if (status.recipients.length > 0) {
    const prose = withoutStatusFields(parts.text)
    const told = completeFromProse(withMailbox(status.recipients, mail, parts), prose)
    const recipients = told.filter(({ address }) => !FOREIGN_NAME.test(address))
    const [only, ...others] = told
    const isNobody = recipients.length === 0 && others.length === 0
    const unnamed = isNobody && only !== undefined ? only : null
    return { ...reading, recipients, unnamed, kind: kindOfActions(told) }
  }
  const evidence = bounceEvidence(mail, parts)
  const isAnswer = isAutoReply(mail, parts)
  const isBounce = evidence === 'strong' || (evidence === 'weak' && !isAnswer)
  if (!isBounce) return { ...reading, kind: isAnswer ? 'auto-reply' : 'other' }
  const recipients = proseRecipients(mail, parts)
  const unnamed = recipients.some(({ diagnostic }) => diagnostic !== '') ? null : wholeText(mail, parts)
  return { ...reading, recipients, unnamed, kind: kindOfActions(unnamed === null ? recipients : [unnamed]) }
}

function emptyReading({ returned }: ReportParts, originalEnvelopeId: string | null): ReportReading {
  const fields = new Map<string, string>()
  for (const { name, value } of returned ?? []) if (!fields.has(name)) fields.set(name, value)
  return {
    kind: 'other',
    recipients: [],
    unnamed: null,
    feedbackType: null,
    references: { originalEnvelopeId, returned: fields },
  }
}

/** The status parts; without them the prose, where it holds their fields and does not quote them. */
function statusText(mail: MailPart, parts: ReportParts): string {
  if (parts.statuses.length > 0) return parts.statuses.join('\n\n')
  return holdsDeliveryStatus(parts.text) && !mayQuote(mail, parts) ? parts.text : ''
}

/** One failure makes a bounce; what is only delayed, delivered, relayed or expanded is a notice. */
function kindOfActions(recipients: readonly Pick<ReportedRecipient, 'action'>[]): ReportKind {
  return recipients.some(({ action }) => action === 'failed') ? 'bounce' : 'notice'
}

/** A single recipient that is no mailbox, such as the path of a file, may be named elsewhere in the report. */
function withMailbox(recipients: ReportedRecipient[], mail: MailPart, parts: ReportParts): ReportedRecipient[] {
  const [only, ...others] = recipients
  // A bare user name is what the mail says; only what cannot be one is replaced.
  const isNamed = only === undefined || isMailbox(only.address) || !/[@/|]/.test(only.address)
  if (isNamed || others.length > 0) return recipients
  const named = findFailedAddresses(mail, parts)
  return named.length === 1 ? named.map(({ address }) => ({ ...only, address })) : recipients
}

/**
 * The prose often names the command that was refused, or holds the only reason. It counts for the recipient that it
 * names; all of it only where there is one recipient.
 */
function completeFromProse(recipients: readonly ReportedRecipient[], text: string): ReportedRecipient[] {
  const names = recipients.map(({ address, finalRecipient }) => [
    address,
    ...(finalRecipient === null ? [] : [finalRecipient]),
  ])
  const texts = readProseAbout(text, names)
  return recipients.map((recipient, index) => {
    const own = texts[index]
    if (own === undefined && recipients.length > 1) return recipient
    const prose = proseDiagnostic(own ?? text)
    const { address, finalRecipient } = asMailed(recipient, prose)
    const isVague = recipient.status === null || vagueness(recipient.status) > 0
    // Prose without any code says less than a code that names a cause, and may be a footer.
    const isReason = isVague || replyCodeIn(prose) !== null || own !== undefined
    return {
      ...recipient,
      address,
      finalRecipient,
      // OpenSMTPD calls the end of a message a delay.
      action: recipient.action === 'delayed' && EXPIRED_SENTENCE.test(prose) ? 'failed' : recipient.action,
      diagnostic: recipient.diagnostic === '' && isReason ? prose : recipient.diagnostic,
      status: isVague ? statedStatus(recipient.status ?? '', prose) : recipient.status,
      replyCode: recipient.replyCode ?? replyCodeIn(prose),
      stage: firstStage(recipient.stage, stageIn(prose)),
    }
  })
}

function proseRecipients(mail: MailPart, parts: ReportParts): ReportedRecipient[] {
  const action = proseAction(mail, parts)
  const whole = proseDiagnostic(parts.text)
  return findFailedAddresses(mail, parts).map(({ address, text }, _, { length }) => {
    const own = text === parts.text ? whole : proseDiagnostic(text)
    const isElsewhere = length === 1 && replyCodeIn(own) === null && replyCodeIn(whole) !== null
    const diagnostic = isElsewhere ? whole : own
    const facts = factsIn(diagnostic)
    const named = asMailed({ address, finalRecipient: null }, own)
    return { ...facts, ...named, action, stage: firstStage(facts.stage, length === 1 ? stageIn(whole) : 'dsn') }
  })
}

/** What is said of a recipient that the report does not name. */
function wholeText(mail: MailPart, parts: ReportParts): ReportReading['unnamed'] {
  return { ...factsIn(proseDiagnostic(parts.text)), action: proseAction(mail, parts), finalRecipient: null }
}

/** Exim tells which address it made of the one that was mailed. */
function asMailed(
  named: Pick<ReportedRecipient, 'address' | 'finalRecipient'>,
  prose: string,
): Pick<ReportedRecipient, 'address' | 'finalRecipient'> {
  const source = findAddresses(GENERATED_FROM.exec(prose)?.[1] ?? '')[0]?.address
  return source === undefined ? named : { address: source, finalRecipient: named.address }
}

function firstStage(stage: ReportStage, other: ReportStage): ReportStage {
  return stage === 'dsn' ? other : stage
}
