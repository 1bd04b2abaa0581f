/**
 * Registers a webhook endpoint (contract.md 8.1).
 *
 * Throws ServiceError `invalid_request` that names every wrong field at once; nothing is stored then. A secret that the
 * caller gave is never shown again; a generated one is in the answer once. The same URL may be registered repeatedly.
 */
import { randomBytes } from 'node:crypto'
import { toUnixSeconds } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { newIdentifier } from '../base/identifier.ts'
import type { KeyRing } from '../base/key-ring.ts'
import { FURTHER_EVENT_KINDS, GIVEN_EVENT_KINDS } from '../mail/event.ts'
import type { GuardedRequest } from '../network/guarded-request.ts'
import type { WebhookEndpointRecord } from '../store/records.ts'
import type { Store } from '../store/store.ts'
import { sealSecret } from './endpoint-secret.ts'

/** Limits of contract.md 8.1, in characters. */
const MOST_SECRET_CHARACTERS = 256
const SHORT_SECRET_CHARACTERS = 16
const MOST_DESCRIPTION_CHARACTERS = 200
/** 32 random bytes are 43 characters of base64url. */
const GENERATED_SECRET_BYTES = 32
const SECRET_PREFIX = 'whsec_'
/** All kinds, later ones too. */
const EVERY_KIND = '*'
const MOST_PROBLEMS = 20

export interface RegisterEndpointRequest {
  url: string
  /** null: the five given kinds. */
  events: string[] | null
  /** null: one is generated. */
  secret: string | null
  description: string | null
}

/** The `data` of the answer; times in Unix seconds. */
export interface WebhookEndpointView {
  id: string
  url: string
  events: string[]
  include: string[]
  description: string | null
  status: 'enabled' | 'disabled'
  disabled_reason: string | null
  secret_set: true
  created_at: number
  updated_at: number
  last_success_at: number | null
  last_failure_at: number | null
  consecutive_failures: number
  pending: number
  dead_letters: number
}

export interface RegisteredEndpoint {
  endpoint: WebhookEndpointView
  /** Only when it was generated: to be shown this once. */
  secret: string | null
  warnings: string[]
}

export interface WebhookEndpoints {
  register(request: RegisterEndpointRequest): Promise<RegisteredEndpoint>
}

export interface WebhookEndpointsOptions {
  store: Store
  clock: Clock
  keyRing: KeyRing
  guardedRequest: GuardedRequest
}

export function createWebhookEndpoints(options: WebhookEndpointsOptions): WebhookEndpoints {
  const { store, clock, keyRing, guardedRequest } = options
  return {
    async register(request) {
      await refuseProblems(request, guardedRequest)
      const now = clock.now()
      const id = newIdentifier('wh', now)
      const generated = request.secret === null ? generateSecret() : null
      const record: WebhookEndpointRecord = {
        id,
        url: request.url,
        events: request.events ?? [...GIVEN_EVENT_KINDS],
        description: request.description,
        status: 'enabled',
        sealedSecret: sealSecret(keyRing, id, request.secret ?? generated ?? ''),
        createdAt: now,
      }
      await store.addWebhookEndpoint(record)
      return { endpoint: newEndpointView(record), secret: generated, warnings: warningsFor(request) }
    },
  }
}

async function refuseProblems(request: RegisterEndpointRequest, guardedRequest: GuardedRequest): Promise<void> {
  const problems = [...eventProblems(request.events), ...textProblems(request)]
  const urlProblem = await guardedRequest.check(request.url)
  if (urlProblem !== undefined) problems.unshift(`url: ${urlProblem}`)
  if (problems.length > 0) throw new ServiceError('invalid_request', problems.slice(0, MOST_PROBLEMS).join('; '))
}

function eventProblems(events: string[] | null): string[] {
  if (events === null) return []
  if (events.length === 0) return ['events: must not be empty; leave it out for the five standard kinds']
  if (events.length === 1 && events[0] === EVERY_KIND) return []
  const known = new Set<string>([...GIVEN_EVENT_KINDS, ...FURTHER_EVENT_KINDS])
  const problems: string[] = []
  events.forEach((kind, index) => {
    if (kind === EVERY_KIND) problems.push(`events[${index}]: "*" must stand alone`)
    else if (!known.has(kind)) problems.push(`events[${index}]: not an event kind`)
    else if (events.indexOf(kind) < index) problems.push(`events[${index}]: ${kind} is there twice`)
  })
  return problems
}

function textProblems({ secret, description }: RegisterEndpointRequest): string[] {
  const problems: string[] = []
  if (secret !== null && (secret === '' || charactersIn(secret) > MOST_SECRET_CHARACTERS)) {
    problems.push(`secret: must have 1 to ${MOST_SECRET_CHARACTERS} characters`)
  }
  if (description !== null && charactersIn(description) > MOST_DESCRIPTION_CHARACTERS) {
    problems.push(`description: must have at most ${MOST_DESCRIPTION_CHARACTERS} characters`)
  }
  return problems
}

function warningsFor({ secret }: RegisterEndpointRequest): string[] {
  if (secret === null || charactersIn(secret) >= SHORT_SECRET_CHARACTERS) return []
  return [`secret: shorter than ${SHORT_SECRET_CHARACTERS} characters`]
}

/** Code points: a character outside the basic plane counts once. */
function charactersIn(text: string): number {
  return [...text].length
}

function generateSecret(): string {
  return `${SECRET_PREFIX}${randomBytes(GENERATED_SECRET_BYTES).toString('base64url')}`
}

/** Nothing was sent to it yet. */
function newEndpointView(record: WebhookEndpointRecord): WebhookEndpointView {
  return {
    id: record.id,
    url: record.url,
    events: record.events,
    include: [],
    description: record.description,
    status: record.status,
    disabled_reason: null,
    secret_set: true,
    created_at: toUnixSeconds(record.createdAt),
    updated_at: toUnixSeconds(record.createdAt),
    last_success_at: null,
    last_failure_at: null,
    consecutive_failures: 0,
    pending: 0,
    dead_letters: 0,
  }
}
