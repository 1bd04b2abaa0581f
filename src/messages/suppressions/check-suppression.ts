/**
 * An entry for the suppression list, from a request or a line of a file (http/README.md "Suppressions"). Problems are
 * put down by field; without one the entry is whole. Pure; never throws.
 */
import type { SuppressionReason, SuppressionRecord } from '../../store/records/suppression-records.ts'
import { readDomainName } from '../../senders/domain-name.ts'
import { readAddress } from '../accept/check-shared-fields.ts'
import { shown, type FieldProblems } from '../accept/field-problems.ts'
import { EVERY_LIST, isScope, LIST_NAME_RULE } from '../accept/list-name.ts'

/** Who asks: which list is meant, and which entries of it. */
export interface Whose {
  isTest: boolean
  /** Sending domains; empty: all. */
  domains: readonly string[]
}

/** Undefined: not given. */
export interface GivenSuppression {
  email: string | undefined
  /** Default manual. */
  reason: string | undefined
  /** Default all. */
  scope: string | undefined
  /** The sending domain; default: all of those who add it. */
  domain: string | undefined
}

export type CheckedSuppression = Pick<SuppressionRecord, 'email' | 'reason' | 'scope' | 'domain' | 'owners'>

const REASONS = [
  'hard_bounce', // the address does not exist; holds for every list
  'complaint', // its owner reported a mail as spam; holds for every list
  'unsubscribe', // its owner left a list
  'manual', // somebody said so
] as const

export function checkSuppression(
  given: GivenSuppression,
  { domains }: Pick<Whose, 'domains'>,
  problems: FieldProblems,
): CheckedSuppression {
  const email = readEmail(given.email, problems)
  const reason = readReason(given.reason ?? 'manual', problems)
  const scope = readScope(given.scope ?? EVERY_LIST, problems)
  const isOfAddress = reason === 'hard_bounce' || reason === 'complaint'
  if (isOfAddress && scope !== EVERY_LIST) problems.add('scope', `must be ${EVERY_LIST} with the reason ${reason}`)
  const domain = readDomain(given.domain, domains, problems)
  return { email, reason, scope, domain, owners: domain === null ? [] : [domain] }
}

/** Any address that could have been written to; a name under `.test` may be one of a server for tests. */
export function readEmail(text: string | undefined, problems: FieldProblems): string {
  return readAddress('email', text, { allowReservedNames: true }, problems)?.mailbox.address ?? ''
}

export function readReason(text: string, problems: FieldProblems): SuppressionReason {
  const reason = REASONS.find((each) => each === text)
  if (reason === undefined) problems.add('reason', `'${shown(text)}' is no reason; known are ${REASONS.join(', ')}`)
  return reason ?? 'manual'
}

export function readScope(text: string, problems: FieldProblems): string {
  if (!isScope(text)) problems.add('scope', `${LIST_NAME_RULE}; ${EVERY_LIST} stands for every list`)
  return text
}

/** null: of every sending domain. */
function readDomain(text: string | undefined, own: readonly string[], problems: FieldProblems): string | null {
  const [first = null] = own
  if (text === undefined && own.length < 2) return first
  const reading = readDomainName(text ?? '')
  if (reading.ok && (own.length === 0 || own.includes(reading.name))) return reading.name
  problems.add('domain', own.length === 0 && !reading.ok ? reading.problem : `must be one of ${own.join(', ')}`)
  return null
}
