/**
 * What the fields of a webhook endpoint may hold (http/README.md "Webhooks"). Every problem is found, each with its
 * field.
 */
import { ServiceError } from '../base/errors.ts'
import { FURTHER_EVENT_KINDS, GIVEN_EVENT_KINDS } from '../mail/event.ts'
import type { GuardedRequest } from '../network/guarded-request.ts'
import { INCLUDED_FIELDS, type IncludedField } from '../store/records/webhook-records.ts'

/** Limits of http/README.md "Webhooks", in characters. */
const MOST_SECRET_CHARACTERS = 256
const SHORT_SECRET_CHARACTERS = 16
const MOST_DESCRIPTION_CHARACTERS = 200
/** All kinds, later ones too. */
const EVERY_KIND = '*'
const MOST_PROBLEMS = 20

const KNOWN_KINDS: readonly string[] = [...GIVEN_EVENT_KINDS, ...FURTHER_EVENT_KINDS]
export const UNKNOWN_KIND = `is no event kind; known are ${KNOWN_KINDS.join(', ')}`

/** null: not given. */
interface EndpointFields {
  url: string | null
  events: string[] | null
  include: string[] | null
  secret: string | null
  description: string | null
}

/** Throws ServiceError `invalid_request` that names every wrong field. */
export async function refuseProblems(fields: EndpointFields, guardedRequest: GuardedRequest): Promise<void> {
  const problems = [...eventProblems(fields.events), ...includeProblems(fields.include), ...textProblems(fields)]
  const urlProblem = fields.url === null ? undefined : await guardedRequest.check(fields.url)
  if (urlProblem !== undefined) problems.unshift(`url: ${urlProblem}`)
  refuse(problems)
}

export function refuse(problems: readonly string[]): void {
  if (problems.length > 0) throw new ServiceError('invalid_request', problems.slice(0, MOST_PROBLEMS).join('; '))
}

export function eventProblems(events: string[] | null): string[] {
  if (events === null) return []
  if (events.length === 0) return ['events: must not be empty; leave it out for the five standard kinds']
  if (events.length === 1 && events[0] === EVERY_KIND) return []
  return events.flatMap((kind, index) => {
    if (kind === EVERY_KIND) return [`events[${index}]: "*" must stand alone`]
    if (!KNOWN_KINDS.includes(kind)) return [`events[${index}]: ${UNKNOWN_KIND}`]
    return events.indexOf(kind) < index ? [`events[${index}]: ${kind} is there twice`] : []
  })
}

function includeProblems(include: string[] | null): string[] {
  return (include ?? []).flatMap((field, index) => {
    if (!isIncludedField(field)) return [`include[${index}]: expected one of ${INCLUDED_FIELDS.join(', ')}`]
    return include?.indexOf(field) === index ? [] : [`include[${index}]: ${field} is there twice`]
  })
}

export function isIncludedField(text: string): text is IncludedField {
  return INCLUDED_FIELDS.some((field) => field === text)
}

function textProblems({ secret, description }: EndpointFields): string[] {
  const problems: string[] = []
  if (secret !== null && (secret === '' || charactersIn(secret) > MOST_SECRET_CHARACTERS)) {
    problems.push(`secret: must have 1 to ${MOST_SECRET_CHARACTERS} characters`)
  }
  if (description !== null && charactersIn(description) > MOST_DESCRIPTION_CHARACTERS) {
    problems.push(`description: must have at most ${MOST_DESCRIPTION_CHARACTERS} characters`)
  }
  return problems
}

export function secretWarnings(secret: string | null): string[] {
  if (secret === null || charactersIn(secret) >= SHORT_SECRET_CHARACTERS) return []
  return [`secret: shorter than ${SHORT_SECRET_CHARACTERS} characters`]
}

/** Code points: a character outside the basic plane counts once. */
function charactersIn(text: string): number {
  return [...text].length
}
