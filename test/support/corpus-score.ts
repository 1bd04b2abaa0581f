/**
 * How well reports and replies that others collected are read: the figures behind `npm run score` and their test.
 *
 * The corpora lie outside the repository and are only read; every function takes the folder they are in. What counts as
 * right for a figure stands beside it; what the corpora leave open does not count.
 */
import { hash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { readShippedBounceRules } from '../../src/config/read-parts.ts'
import { BOUNCE_CATEGORIES } from '../../src/mail/reply/bounce-category.ts'
import { createClassifier, type ClassifyReply } from '../../src/mail/reply/classify-reply.ts'
import { judgeReported } from '../../src/mail/report/judge-report.ts'
import { readReport } from '../../src/mail/report/read-report.ts'
import { stageIn } from '../../src/mail/report/report-diagnostic.ts'
import type { ReportReading } from '../../src/mail/report/report-reading.ts'

/** Beside the project, where it is there at all. */
export const CORPORA = fileURLToPath(new URL('../../../shared/corpora', import.meta.url))

export interface Figure {
  right: number
  of: number
  misses: string[]
}
export type Figures = Map<string, Figure>

export const hasCorpora = (folder = CORPORA): boolean => existsSync(`${folder}/bounces/expected.jsonl`)

export function shippedClassifier(): ClassifyReply {
  return createClassifier(readShippedBounceRules(fileURLToPath(new URL('../../config', import.meta.url))))
}

interface ExpectedRecipient {
  recipient: string | null
  action: string | null
  status?: string | null
  status_pseudo?: string
  smtp_code?: string | null
  reason: string | null
  hard?: boolean | null
}

interface ExpectedMail {
  file: string
  kind: string
  gold_recipient?: boolean
  disputed?: string
  expected: ExpectedRecipient[]
  /** Only as a correction: in place of those of `expected`. */
  recipients?: string[] | undefined
  skip?: Correction['skip'] | undefined
  /** What another reader made of it. */
  second_opinion?: { deliverystatus?: string }[]
}

/** What is wrong about an expectation (`corrections.jsonl`); left out: it stands. */
interface Correction {
  file: string
  /** Of the file with LF alone, the first 12 characters. */
  sha256_lf: string
  kind?: string
  recipients?: string[]
  hard?: boolean
  /** For rows of this reason alone. */
  only?: string
  /** Figures that the file does not count for. */
  skip?: ('kind' | 'all' | 'gold' | 'hard' | 'wrongSuppress' | 'complaint')[]
}

/** By file; those that are about another version of it are left out. */
function readCorrections(folder: string): Map<string, Correction> {
  const file = `${folder}/bounces/corrections.jsonl`
  const corrections = existsSync(file) ? linesOf<Correction>(file) : []
  const isOf = ({ file: name, sha256_lf }: Correction): boolean => {
    const text = readFileSync(`${folder}/bounces/files/${name}`, 'latin1').replaceAll('\r\n', '\n')
    return hash('sha256', Buffer.from(text, 'latin1')).startsWith(sha256_lf)
  }
  return new Map(corrections.filter(isOf).map((correction) => [correction.file, correction]))
}

function corrected(mail: ExpectedMail, correction: Correction | undefined): ExpectedMail {
  if (correction === undefined) return mail
  const { kind = mail.kind, recipients, hard, only } = correction
  const rows = mail.expected.map((row) =>
    hard !== undefined && (only === undefined || only === row.reason) ? { ...row, hard } : row,
  )
  return { ...mail, kind, expected: rows, recipients: recipients ?? mail.recipients, skip: correction.skip }
}

/** Which of our kinds stand for a kind of the corpus. */
const KINDS: Readonly<Record<string, readonly string[]>> = {
  bounce: ['bounce'],
  notice: ['notice'],
  'auto-reply': ['auto-reply'],
  delivered: ['notice'],
  'not-bounce': ['other'],
}

/** Categories that stand for a reason of the corpus; reasons that are left out are not scored. */
const CATEGORIES: Readonly<Record<string, readonly string[]>> = {
  userunknown: ['invalid_recipient'],
  user_unknown: ['invalid_recipient'],
  filtered: ['invalid_recipient', 'policy', 'recipient_refused'],
  hostunknown: ['bad_domain'],
  domain_error: ['bad_domain'],
  notaccept: ['null_mx', 'bad_domain'],
  hasmoved: ['moved'],
  suspend: ['inactive'],
  user_disabled: ['inactive'],
  mailboxfull: ['mailbox_full'],
  over_quota: ['mailbox_full'],
  mesgtoobig: ['too_large'],
  exceedlimit: ['too_large'],
  expired: ['expired', 'no_answer', 'dns'],
  networkerror: ['expired', 'no_answer', 'dns'],
  blocked: ['ip_block'],
  badreputation: ['ip_block'],
  requireptr: ['no_ptr', 'ip_block'],
  spamdetected: ['spam_content'],
  spam: ['spam_content'],
  authfailure: ['auth_failed'],
  speeding: ['rate'],
  toomanyconn: ['rate'],
  virusdetected: ['virus'],
  syntaxerror: ['protocol'],
  policyviolation: ['policy', 'auth_failed', 'sender_refused', 'relay_denied'],
  securityerror: ['policy', 'auth_failed', 'sender_refused', 'relay_denied'],
  rejected: ['policy', 'auth_failed', 'sender_refused', 'relay_denied'],
  norelaying: ['policy', 'auth_failed', 'sender_refused', 'relay_denied'],
  notcompliantrfc: ['policy', 'auth_failed', 'sender_refused', 'relay_denied'],
}

/** Feedback types that are read and are no complaints. */
const NO_COMPLAINTS = ['auth-failure', 'opt-out', 'not-spam']

export function scoreBounces(folder: string): Figures {
  const figures: Figures = new Map()
  const classify = shippedClassifier()
  const corrections = readCorrections(folder)
  for (const line of linesOf<ExpectedMail>(`${folder}/bounces/expected.jsonl`)) {
    const mail = corrected(line, corrections.get(line.file))
    const bytes = readFileSync(`${folder}/bounces/files/${mail.file}`)
    const reading = readReport(bytes)
    scoreKind(figures, mail, reading)
    if (mail.kind !== 'bounce' && mail.kind !== 'notice') continue
    scoreRecipients(figures, mail, reading)
    // Soft line breaks would hide a code.
    const text = bytes.toString('latin1').replace(/=\r?\n/g, '')
    for (const expected of mail.expected) scoreRow(figures, { mail, expected, reading, text, classify })
  }
  return figures
}

interface ExpectedFeedback {
  file: string
  expected: { recipient: string | null; feedback_type: string }[]
}

export function scoreFeedback(folder: string): Figures {
  const figures: Figures = new Map()
  const corrections = readCorrections(folder)
  for (const { file, expected } of linesOf<ExpectedFeedback>(`${folder}/bounces/expected_feedback.jsonl`)) {
    if (corrections.get(file)?.skip?.includes('complaint') === true) continue
    const reading = readReport(readFileSync(`${folder}/bounces/files/${file}`))
    const type = expected[0]?.feedback_type ?? ''
    const isComplaint = !NO_COMPLAINTS.includes(type)
    const wanted = sorted(expected.map(({ recipient }) => recipient))
    const told = `${file}: ${reading.kind} ${String(reading.feedbackType)}`
    count(figures, 'feedback type', reading.feedbackType === type, told)
    count(figures, 'complaint or not', (reading.kind === 'complaint') === isComplaint, told)
    const named = sorted(reading.recipients.map(({ address }) => address))
    count(figures, 'complaint recipients', isEqual(named, wanted), `${file}: ${named.join()} not ${wanted.join()}`)
  }
  return figures
}

interface ExpectedReply {
  text: string
  smtp_code: string | null
  status: string | null
  reason: string
  hard: boolean | null
}

/** The texts come from reports, so the stage is the one they tell of. */
export function scoreReplies(folder: string): Figures {
  const figures: Figures = new Map()
  const classify = shippedClassifier()
  const replies = linesOf<ExpectedReply>(`${folder}/smtp-replies/replies.jsonl`)
  for (const { text, smtp_code, status, reason, hard } of replies) {
    const code = Number(smtp_code ?? `${status?.charAt(0) ?? '5'}50`)
    const enhancedCode = status?.startsWith(String(Math.floor(code / 100))) === true ? status : null
    const { category, rule, suppress } = classify({ code, enhancedCode, text }, stageIn(text), null)
    const told = `${category} (${rule ?? 'by code'}) for ${reason}: ${text.slice(0, 160)}`
    count(figures, 'replies classified', category !== 'unknown', told)
    const isHard = BOUNCE_CATEGORIES[category].type === 'hard'
    if (hard !== null && reason !== 'suspend') count(figures, 'replies hard', isHard === hard, told)
    const isDead = hard !== false || reason === 'suspend'
    if (suppress === 'always') count(figures, 'replies suppressed rightly', isDead, told)
  }
  return figures
}

function scoreKind(figures: Figures, mail: ExpectedMail, { kind }: ReportReading): void {
  const kinds = KINDS[mail.kind]
  if (mail.disputed !== undefined || mail.skip?.includes('kind') === true || kinds === undefined) return
  const told = `${mail.file}: ${kind} not ${mail.kind}`
  count(figures, 'kind', kinds.includes(kind), told)
  if (mail.kind !== 'bounce') count(figures, 'no bounce where there is none', kind !== 'bounce', told)
}

function scoreRecipients(figures: Figures, mail: ExpectedMail, reading: ReportReading): void {
  const wanted = sorted(mail.recipients ?? mail.expected.map(({ recipient }) => recipient))
  if (wanted.length === 0 || mail.skip?.includes('all') === true) return
  const named = sorted(reading.recipients.map(({ address, finalRecipient }) => finalRecipient ?? address))
  const told = `${mail.file}: ${named.join() || 'nobody'} not ${wanted.join()}`
  if (mail.gold_recipient === true) count(figures, 'recipients, confirmed ones', isEqual(named, wanted), told)
  count(figures, 'recipients, all', isEqual(named, wanted), told)
}

interface Row {
  mail: ExpectedMail
  expected: ExpectedRecipient
  reading: ReportReading
  text: string
  classify: ClassifyReply
}

function scoreRow(figures: Figures, { mail, expected, reading, text, classify }: Row): void {
  const isOwn = (address: string | null): boolean => comparable(address ?? '') === comparable(expected.recipient ?? '')
  const own = reading.recipients.find(({ address, finalRecipient }) => isOwn(address) || isOwn(finalRecipient))
  const recipient = own ?? (mail.expected.length === 1 ? reading.recipients[0] : undefined)
  const judgement = recipient && judgeReported(recipient, classify, null)
  const { status, reason, hard } = expected
  const seen = recipient === undefined ? 'nobody' : `${recipient.status} ${recipient.diagnostic.slice(0, 160)}`
  const decided = `${judgement?.category ?? '-'} (${judgement?.rule ?? 'by code'})`
  const told = `${mail.file}: ${decided}, ${seen}; not ${status} ${reason}`
  const isStated = typeof status === 'string' && expected.status_pseudo === undefined && text.includes(status)
  // Where two readers differ, one took the summary and the other what the remote server said: either is in the mail.
  const others = mail.second_opinion?.map(({ deliverystatus }) => deliverystatus) ?? []
  const isRead = recipient?.status === status || others.includes(recipient?.status ?? undefined)
  if (isStated) count(figures, 'status', isRead, told)
  if (isStated) count(figures, 'status, first opinion', recipient?.status === status, told)
  if (typeof hard === 'boolean' && reason !== 'suspend' && mail.skip?.includes('hard') !== true) {
    // What the answer means; a temporary one of that meaning is a soft bounce all the same.
    const isHard = judgement !== undefined && BOUNCE_CATEGORIES[judgement.category].type === 'hard'
    count(figures, 'hard', isHard === hard, told)
  }
  const isDead = hard !== false || reason === 'suspend' || mail.skip?.includes('wrongSuppress') === true
  if (judgement?.suppress === 'always') count(figures, 'suppressed rightly', isDead, told)
  const categories = CATEGORIES[reason ?? '']
  if (categories !== undefined) count(figures, 'category', categories.includes(judgement?.category ?? ''), told)
}

function count(figures: Figures, name: string, isRight: boolean, miss: string): void {
  const figure = figures.get(name) ?? { right: 0, of: 0, misses: [] }
  figures.set(name, figure)
  figure.of++
  if (isRight) figure.right++
  else figure.misses.push(miss)
}

function linesOf<Line>(file: string): Line[] {
  return readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line): Line => JSON.parse(line))
}

/** Domain without case, local part exact. */
function comparable(address: string): string {
  const at = address.lastIndexOf('@')
  return at === -1 ? address : address.slice(0, at) + address.slice(at).toLowerCase()
}

function sorted(addresses: readonly (string | null)[]): string[] {
  return [...new Set(addresses.filter((address) => address !== null).map(comparable))].sort()
}

function isEqual(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((address, index) => address === other[index])
}
