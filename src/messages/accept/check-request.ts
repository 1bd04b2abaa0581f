/**
 * A request to send -> the checked mail and its recipients, or every problem of the recipients and of all other fields
 * apart (http/README.md "Order of checks", steps 9 and 10). Pure and linear in the size of the request; only
 * `readRequest` throws: what it found.
 */
import { ServiceError } from '../../base/errors.ts'
import type { StoredContent } from '../../mail/message.ts'
import { sizeProblems } from './check-attachments.ts'
import {
  checkSharedFields,
  readAddress,
  type CheckedMail,
  type CheckedRecipient,
  type RequestPolicy,
} from './check-shared-fields.ts'
import { checkText, createFieldProblems, type FieldProblems } from './field-problems.ts'
import type { SendRequest } from './send-request.ts'

export interface CheckedRequest {
  mail: CheckedMail
  /** In the order to, cc, bcc, each once. */
  recipients: CheckedRecipient[]
  addressees: StoredContent['addressees']
}

type RequestReading =
  { ok: true; checked: CheckedRequest } | { ok: false; recipientProblems: string[]; fieldProblems: string[] }

/** http/README.md "Limits": to, cc and bcc together. */
const MOST_ADDRESSES = 50

/** Steps 9 to 11: ServiceError with all that the first failing step found. */
export function readRequest(request: SendRequest, policy: RequestPolicy): CheckedRequest {
  const reading = checkRequest(request, policy)
  if (!reading.ok) {
    const { recipientProblems, fieldProblems } = reading
    const code = recipientProblems.length > 0 ? 'invalid_recipient' : 'invalid_request'
    throw new ServiceError(code, [...recipientProblems, ...fieldProblems].join('; '))
  }
  refuseLargeAttachments(reading.checked.mail)
  return reading.checked
}

/** Step 11. */
export function refuseLargeAttachments({ attachments }: CheckedMail): void {
  const problems = sizeProblems(attachments)
  if (problems.length > 0) throw new ServiceError('attachment_too_large', problems.join('; '))
}

function checkRequest(request: SendRequest, policy: RequestPolicy): RequestReading {
  const problems = createFieldProblems(request.wrongTypes)
  const addresses = readAddresses(request, policy, problems)
  const hasVariables = request.variables !== null
  const { mail, templates } = checkSharedFields(
    request,
    { hasVariables, defaultStream: 'transactional', policy },
    problems,
  )
  const raw = request.variables ?? {}
  checkVariables(raw, problems)
  for (const { about, name, text } of templates.problems(raw)) {
    problems.add(about === 'variable' ? `variables.${name}` : name, text)
  }
  const recipientProblems = problems.recipient()
  const fieldProblems = problems.fields()
  const isFaulty = recipientProblems.length > 0 || fieldProblems.length > 0
  if (isFaulty || mail === undefined || addresses === undefined) return { ok: false, recipientProblems, fieldProblems }
  const variables = templates.usable(raw)
  const { all, addressees } = addresses
  return { ok: true, checked: { mail, addressees, recipients: all.map((each) => ({ ...each, variables })) } }
}

type Address = Pick<CheckedRecipient, 'mailbox' | 'domain'>

interface Addresses {
  all: Address[]
  addressees: StoredContent['addressees']
}

/** Undefined when one of them is no address. */
function readAddresses(request: SendRequest, policy: RequestPolicy, problems: FieldProblems): Addresses | undefined {
  const { cc, bcc } = request
  const count = 1 + cc.length + bcc.length
  const to = readAddress('to', request.to, policy, problems)
  if (count > MOST_ADDRESSES) {
    problems.add(cc.length > 0 ? 'cc' : 'bcc', `${count} addresses with to, cc and bcc; at most ${MOST_ADDRESSES}`)
    return undefined
  }
  const read = (field: string, texts: readonly string[]): Address[] =>
    texts.flatMap((text, index) => readAddress(`${field}[${index}]`, text, policy, problems) ?? [])
  const [copies, blindCopies] = [read('cc', cc), read('bcc', bcc)]
  const all = [to ?? [], copies, blindCopies].flat()
  if (to === undefined || all.length < count) return undefined
  const addressees = count === 1 ? null : { to: to.mailbox, cc: copies.map(({ mailbox }) => mailbox) }
  return { all: eachOnce(all).map(({ mailbox, domain }) => ({ mailbox, domain })), addressees }
}

/** Nobody gets a mail twice for being named twice. Capitals make no other address, as at the SMTP door. */
function eachOnce(addresses: readonly Address[]): Address[] {
  const firsts = new Map<string, Address>()
  for (const each of addresses) {
    const address = each.mailbox.address.toLowerCase()
    if (!firsts.has(address)) firsts.set(address, each)
  }
  return [...firsts.values()]
}

function checkVariables(raw: Record<string, unknown>, problems: FieldProblems): void {
  for (const [key, value] of Object.entries(raw)) {
    checkText('variables', key, problems)
    if (typeof value === 'string') checkText(`variables.${key}`, value, problems)
  }
}
