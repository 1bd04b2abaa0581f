/**
 * A batch -> the checked mail and a verdict on each recipient, or the refusal of the whole (http/README.md "Batches").
 * Placeholders are looked for once; each recipient is then judged by the values they use. Only `readBatch` throws: the
 * refusal.
 */
import { ServiceError } from '../../base/errors.ts'
import type { ReadTemplates, TemplateProblem } from '../../content/template/template-problems.ts'
import { MOST_ADDRESS_INPUT_CHARACTERS, parseAddress } from '../../mail/address.ts'
import { refuseLargeAttachments } from './check-request.ts'
import {
  checkSharedFields,
  type CheckedMail,
  type CheckedRecipient,
  type RequestPolicy,
} from './check-shared-fields.ts'
import { createFieldProblems, shown } from './field-problems.ts'
import type { BatchRequest, RefusedRecipient } from './send-request.ts'

export type BatchEntry = { ok: true; recipient: CheckedRecipient } | { ok: false; refused: RefusedRecipient }

export interface CheckedBatch {
  mail: CheckedMail
  entries: BatchEntry[]
}

interface Refusal {
  code: RefusedRecipient['code']
  problems: string[]
}

/** http/README.md "Batches": a refused batch names so many of its recipients. */
const MOST_NAMED_RECIPIENTS = 10
/** Of one recipient: a template may use many variables. */
const MOST_DETAILS_CHARACTERS = 500
// An entry of the list, and the field in it, as the door names them.
const RECIPIENT_PATH = /^recipients\[(\d+)\](\.to(?=:))?/

/**
 * Steps 9 to 11: ServiceError with all that the first failing step found. The entries are in the order of the request,
 * and at least one of them is no refusal.
 */
export function readBatch(request: BatchRequest, policy: RequestPolicy, mostRecipients: number): CheckedBatch {
  const { ofRecipients, ofFields } = splitWrongTypes(request.wrongTypes)
  const problems = createFieldProblems(ofFields)
  const { mail, templates } = checkSharedFields(
    request,
    { hasVariables: true, defaultStream: 'bulk', policy },
    problems,
  )
  const ownProblems = templates.ownProblems()
  for (const { name, text } of ownProblems) problems.add(name, text)
  const { recipients = [], isStrict } = request
  if (recipients.length === 0) problems.add('recipients', request.recipients === undefined ? 'is missing' : 'is empty')
  const isTooLong = recipients.length > mostRecipients
  if (isTooLong) problems.add('recipients', `${recipients.length} entries; at most ${mostRecipients} are allowed`)
  const entries = isTooLong
    ? []
    : recipients.map((values, index) =>
        readRecipient(values, {
          index,
          policy,
          templates: ownProblems.length === 0 ? templates : null,
          wrongTypes: ofRecipients.get(index) ?? [],
        }),
      )
  const refusal = refusalOf(entries, isStrict, problems.fields())
  if (refusal !== undefined) throw new ServiceError(refusal.code, refusal.problems.join('; '))
  if (mail === undefined) throw new ServiceError('invalid_request')
  refuseLargeAttachments(mail)
  return { mail, entries }
}

/** What the door found about single recipients refuses those alone. */
function splitWrongTypes(wrongTypes: readonly string[]): { ofRecipients: Map<number, string[]>; ofFields: string[] } {
  const ofRecipients = new Map<number, string[]>()
  const ofFields: string[] = []
  for (const problem of wrongTypes) {
    const index = RECIPIENT_PATH.exec(problem)?.[1]
    if (index === undefined) ofFields.push(problem)
    else ofRecipients.set(Number(index), [...(ofRecipients.get(Number(index)) ?? []), problem])
  }
  return { ofRecipients, ofFields }
}

/** Bad addresses come before bad fields, and those before the other faults of recipients. */
function refusalOf(entries: readonly BatchEntry[], isStrict: boolean, fields: readonly string[]): Refusal | undefined {
  const refused = entries.flatMap((entry) => (entry.ok ? [] : [entry.refused]))
  const [first] = refused
  const isRefused = first !== undefined && (isStrict || refused.length === entries.length)
  const named = isRefused ? refused.slice(0, MOST_NAMED_RECIPIENTS).map(({ details }) => details) : []
  if (first !== undefined && isRefused && (fields.length === 0 || first.code === 'invalid_recipient')) {
    return { code: first.code, problems: [...named, ...fields] }
  }
  return fields.length === 0 ? undefined : { code: 'invalid_request', problems: [...fields, ...named] }
}

interface RecipientFacts {
  index: number
  /** null: they are wrong for everybody. */
  templates: ReadTemplates | null
  policy: RequestPolicy
  /** What the door found. */
  wrongTypes: readonly string[]
}

function readRecipient(values: Record<string, unknown> | null, facts: RecipientFacts): BatchEntry {
  const { index, templates, policy, wrongTypes } = facts
  const path = `recipients[${index}]`
  const given = values !== null && Object.hasOwn(values, 'to') ? values['to'] : undefined
  const to = typeof given === 'string' ? given : ''
  const refuse = (code: RefusedRecipient['code'], problems: readonly string[]): BatchEntry => ({
    ok: false,
    refused: refusedRecipient(to, code, problems),
  })
  if (wrongTypes.length > 0) {
    const isAddress = wrongTypes.some((problem) => RECIPIENT_PATH.exec(problem)?.[2] !== undefined)
    return refuse(isAddress ? 'invalid_recipient' : 'invalid_request', wrongTypes)
  }
  if (values === null) return refuse('invalid_recipient', [`${path}: must be an object`])
  if (typeof given !== 'string') {
    const isMissing = given === undefined || given === null
    return refuse('invalid_recipient', [`${path}.to: ${isMissing ? 'is missing' : 'must be a string'}`])
  }
  const address = parseAddress(to, policy)
  if (!address.ok) return refuse('invalid_recipient', [`${path}.to: ${address.problem}`])
  const problems = templates?.problems(values).map((problem) => problemText(path, problem)) ?? []
  if (problems.length > 0) return refuse('invalid_request', problems)
  const variables = templates?.usable(values) ?? {}
  const unsafe = unsafeValue(values)
  if (unsafe !== undefined) return refuse('invalid_request', [`${path}.${unsafe}`])
  return { ok: true, recipient: { mailbox: address.mailbox, domain: address.domain, variables } }
}

function refusedRecipient(to: string, code: RefusedRecipient['code'], problems: readonly string[]): RefusedRecipient {
  const details = problems.join('; ').slice(0, MOST_DETAILS_CHARACTERS)
  return { to: to.slice(0, MOST_ADDRESS_INPUT_CHARACTERS).toWellFormed(), code, details: details.toWellFormed() }
}

function problemText(path: string, { about, name, text }: TemplateProblem): string {
  return about === 'variable' ? `${path}.${name}: ${text}` : `${path}: ${name} ${text}`
}

/**
 * http/README.md "Conventions": no U+0000 and no half of a pair in any string, used or not; the door names only the
 * first ones.
 */
function unsafeValue(values: Record<string, unknown>): string | undefined {
  for (const [key, value] of Object.entries(values)) {
    const texts = typeof value === 'string' ? [key, value] : [key]
    if (texts.some((text) => text.includes('\0'))) return `${shown(key)}: has the character U+0000`
    if (!texts.every((text) => text.isWellFormed())) return `${shown(key)}: has an unpaired surrogate`
  }
  return undefined
}
