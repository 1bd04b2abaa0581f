/**
 * A request to send -> the checked mail, or every problem of the recipient and of all other fields apart (contract.md
 * 2.1, steps 9 and 10).
 *
 * What comes out has one meaning everywhere: the address that was judged is the address that is stored, signed for and
 * sent to. Pure and linear in the size of the request; never throws.
 */
import { templateProblems, usableVariables } from '../content/template-problems.ts'
import { parseAddress } from '../mail/address.ts'
import type { ParsedAddress } from '../mail/address.ts'
import type { Mailbox, StoredContent, Variables } from '../mail/message.ts'
import { checkAttachments } from './check-attachments.ts'
import type { CheckedAttachment } from './check-attachments.ts'
import { createFieldProblems } from './field-problems.ts'
import type { FieldProblems } from './field-problems.ts'
import type { SendRequest } from './send-request.ts'

export interface CheckedRequest {
  to: Mailbox
  recipientDomain: string
  /** Domain of `from`: the sending domain. */
  domain: string
  content: Omit<StoredContent, 'attachments'>
  attachments: CheckedAttachment[]
  variables: Variables
}

export type RequestReading =
  | { ok: true; checked: CheckedRequest }
  | { ok: false; recipientProblems: string[]; fieldProblems: string[] }

export interface RequestPolicy {
  /** Names under `.test` and the like may be written to. */
  allowReservedNames: boolean
}

type AcceptedAddress = Extract<ParsedAddress, { ok: true }>

const MISSING = { ok: false, problem: 'is missing' } as const

export function checkRequest(request: SendRequest, policy: RequestPolicy): RequestReading {
  const problems = createFieldProblems(request.wrongTypes)
  const to = readAddress('to', request.to, policy, problems)
  // The domain must be a verified one of ours, so a reserved name is not refused for its own sake.
  const from = readAddress('from', request.from, { allowReservedNames: true }, problems)
  const replyTo = request.replyTo === undefined ? null : readAddress('reply_to', request.replyTo, policy, problems)
  const content = readContent(request, problems)
  const attachments = checkAttachments(request.attachments, problems)
  const raw = request.variables ?? {}
  checkVariables(raw, problems)
  for (const problem of templateProblems(content, raw)) addProblem(problem, problems)
  const recipientProblems = problems.recipient()
  const fieldProblems = problems.fields()
  const isFaulty = recipientProblems.length > 0 || fieldProblems.length > 0
  if (isFaulty || to === undefined || from === undefined || replyTo === undefined) {
    return { ok: false, recipientProblems, fieldProblems }
  }
  return {
    ok: true,
    checked: {
      to: to.mailbox,
      recipientDomain: to.domain,
      domain: from.domain,
      content: { ...content, from: from.mailbox, replyTo: replyTo?.mailbox ?? null },
      attachments,
      variables: usableVariables(content, raw),
    },
  }
}

/** Undefined after a problem, which is then in the list. */
function readAddress(
  path: string,
  text: string | undefined,
  policy: RequestPolicy,
  problems: FieldProblems,
): AcceptedAddress | undefined {
  const parsed = text === undefined ? MISSING : parseAddress(text, policy)
  if (parsed.ok) return parsed
  problems.add(path, parsed.problem)
  return undefined
}

type Text = Pick<StoredContent, 'subject' | 'html' | 'text' | 'hasVariables'>

function readContent({ subject, html, text, variables }: SendRequest, problems: FieldProblems): Text {
  if (subject === undefined) problems.add('subject', 'is missing')
  const hasBody = html !== undefined || text !== undefined
  // A body of the wrong type is there, and named already.
  if (!hasBody && !problems.isNamed('text')) problems.add('html', 'one of html and text is needed')
  checkText('html', html ?? '', problems)
  checkText('text', text ?? '', problems)
  return { subject: subject ?? '', html: html ?? null, text: text ?? null, hasVariables: variables !== null }
}

function checkVariables(raw: Record<string, unknown>, problems: FieldProblems): void {
  for (const [key, value] of Object.entries(raw)) {
    checkText('variables', key, problems)
    if (typeof value === 'string') checkText(`variables.${key}`, value, problems)
  }
}

/** contract.md 1: no U+0000 and no half of a pair in any string. */
function checkText(path: string, text: string, problems: FieldProblems): void {
  if (text.includes('\0')) problems.add(path, 'has the character U+0000')
  if (!text.isWellFormed()) problems.add(path, 'has an unpaired surrogate')
}

/** A sentence that names its path itself. */
function addProblem(sentence: string, problems: FieldProblems): void {
  const colon = sentence.indexOf(': ')
  problems.add(sentence.slice(0, colon), sentence.slice(colon + 2))
}
