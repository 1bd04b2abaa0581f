/**
 * Webhook endpoints: registering, showing, changing, removing them, and rotating their secrets (http/README.md
 * "Webhooks", webhooks/README.md "Secret rotation").
 *
 * Throws ServiceError: `invalid_request` names every wrong field at once, and nothing is stored then; `not_found`;
 * `conflict` for one endpoint too many and for a rotation during another. A secret that the caller gave is never shown
 * again; a generated one is in the answer once. The same URL may be registered repeatedly.
 */
import type { WebhookEndpointJson } from '../api/webhook.ts'
import { randomBytes } from 'node:crypto'
import { SECOND, toUnixSeconds, type Clock, secondsOrNull } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { newIdentifier } from '../base/identifier.ts'
import type { KeyRing } from '../base/key-ring.ts'
import { GIVEN_EVENT_KINDS } from '../mail/event.ts'
import { includesReach, type Reach } from '../mail/reach.ts'
import type { GuardedRequest } from '../network/guarded-request.ts'
import type { Store } from '../store/store.ts'
import type {
  WebhookEndpointChange,
  WebhookEndpointRecord,
  WebhookEndpointState,
} from '../store/records/webhook-records.ts'
import { isIncludedField, refuse, refuseProblems, secretWarnings } from './endpoint-rules.ts'
import { canSign, sealSecret } from './endpoint-secret.ts'

export interface RegisterEndpointRequest {
  url: string
  /** null: the five given kinds. */
  events: string[] | null
  /** Left out: none. */
  include?: string[]
  /** null: one is generated. */
  secret: string | null
  description: string | null
  /** Which events it gets; left out: those of live mail, of all domains. */
  reach?: Reach
}

/** `domains`: never fewer than before. */
type ChangeEndpointRequest = Omit<WebhookEndpointChange, 'include'> & { include?: string[] }

export type WebhookEndpoints = ReturnType<typeof createWebhookEndpoints>

interface WebhookEndpointsOptions {
  store: Store
  clock: Clock
  keyRing: KeyRing
  guardedRequest: GuardedRequest
  /** Endpoints in all; left out or null: no limit. */
  mostEndpoints?: number | null
  /** What waits may go out now. */
  onEnabled?: () => void
  /** A server for development: an endpoint gets the events of live and of test keys. */
  testMode?: boolean
}

/** 32 random bytes are 43 characters of base64url. */
const GENERATED_SECRET_BYTES = 32
const SECRET_PREFIX = 'whsec_'
/** webhooks/README.md "Secret rotation", in seconds. */
const DEFAULT_GRACE = 86_400
const MOST_GRACE = 604_800
const NOT_GIVEN = { url: null, events: null, include: null, secret: null, description: null }

export function createWebhookEndpoints(options: WebhookEndpointsOptions) {
  const { store, clock, keyRing, guardedRequest, mostEndpoints = null } = options

  return {
    async register(request: RegisterEndpointRequest) {
      const { url, description, events, include = [], reach = { isTest: false, domains: [] } } = request
      await refuseProblems({ ...request, include }, guardedRequest)
      const now = clock.now()
      const id = newIdentifier('wh', now)
      const generated = request.secret === null ? generateSecret() : null
      const record: WebhookEndpointRecord = {
        id,
        url,
        description,
        events: events ?? [...GIVEN_EVENT_KINDS],
        include: include.filter(isIncludedField),
        isTest: options.testMode === true ? null : reach.isTest,
        domains: reach.domains,
        status: 'enabled',
        sealedSecret: sealSecret(keyRing, id, request.secret ?? generated ?? ''),
        createdAt: now,
      }
      await store.addWebhookEndpoint(record, mostEndpoints)
      return { endpoint: endpointView(newState(record)), secret: generated, warnings: secretWarnings(request.secret) }
    },

    /** Those within a reach, newest first. */
    async list(reach: Reach, limit: number, after: string | null) {
      const { endpoints, next } = await store.listWebhookEndpoints(reach, limit, after)
      return { endpoints: endpoints.map(endpointView), next }
    },

    /** What is beyond the reach is unknown. */
    async find(id: string, reach: Reach) {
      const state = known(id, await store.findWebhookEndpoint(id))
      if (!includesReach(reach, state)) throw unknownEndpoint(id)
      return endpointView(state)
    },

    async update(id: string, request: ChangeEndpointRequest) {
      await refuseProblems({ ...NOT_GIVEN, ...request }, guardedRequest)
      const { include, ...change } = request
      const { domains, status } = change
      if (domains !== undefined) refuseFewer(domains, known(id, await store.findWebhookEndpoint(id)))
      const included = include === undefined ? {} : { include: include.filter(isIncludedField) }
      const state = known(id, await store.updateWebhookEndpoint(id, { ...change, ...included }, clock.now()))
      if (status === 'enabled') options.onEnabled?.()
      return endpointView(state)
    },

    /** What waits for it is never sent. */
    async remove(id: string) {
      if (!(await store.removeWebhookEndpoint(id, clock.now()))) throw unknownEndpoint(id)
    },

    rotateSecret: createSecretRotation(options),
  }
}

/**
 * null secret: one is generated. The old secret signs for `graceSeconds` more; null: a day. One that cannot be opened
 * signs nothing: it gives way at once, with a rotation that is under way.
 */
function createSecretRotation({ store, clock, keyRing, guardedRequest }: WebhookEndpointsOptions) {
  return async (id: string, { secret, graceSeconds }: { secret: string | null; graceSeconds: number | null }) => {
    await refuseProblems({ ...NOT_GIVEN, secret }, guardedRequest)
    if (graceSeconds !== null && (graceSeconds < 0 || graceSeconds > MOST_GRACE)) {
      refuse([`grace_seconds: must be from 0 to ${MOST_GRACE}`])
    }
    const now = clock.now()
    const isLost = !canSign(keyRing, known(id, await store.findWebhookTarget(id)), now)
    // A whole second: the one that is told.
    const switchAt = (toUnixSeconds(now) + (isLost ? 0 : (graceSeconds ?? DEFAULT_GRACE))) * SECOND
    const generated = secret === null ? generateSecret() : null
    const sealedSecret = sealSecret(keyRing, id, secret ?? generated ?? '')
    const result = known(id, await store.rotateWebhookSecret(id, { sealedSecret, switchAt, now, isLost }))
    if (result.kind === 'under-way') {
      const at = toUnixSeconds(result.switchAt)
      throw new ServiceError('conflict', `an earlier rotation takes effect at ${at}; the next one has to wait for it`)
    }
    return { secret: generated, switchAt, warnings: secretWarnings(secret) }
  }
}

/** Whoever sees an endpoint sees its deliveries: those of a domain that it had once would be among them. */
function refuseFewer(domains: readonly string[], before: Reach): void {
  if (includesReach({ isTest: null, domains }, before)) return
  refuse(['domains: may only grow; for fewer, register another endpoint'])
}

function generateSecret(): string {
  return `${SECRET_PREFIX}${randomBytes(GENERATED_SECRET_BYTES).toString('base64url')}`
}

/** Nothing was sent to it yet. */
function newState({ sealedSecret: _sealedSecret, ...record }: WebhookEndpointRecord): WebhookEndpointState {
  return {
    ...record,
    disabledReason: null,
    updatedAt: record.createdAt,
    lastSuccessAt: null,
    lastFailureAt: null,
    consecutiveFailures: 0,
    pending: 0,
    deadLetters: 0,
  }
}

export function known<Found>(id: string, found: Found | null): Found {
  if (found === null) throw unknownEndpoint(id)
  return found
}

function unknownEndpoint(id: string): ServiceError {
  // Enough to show any real id whole.
  return new ServiceError('not_found', `webhook ${id.slice(0, 64)}`)
}

function endpointView(state: WebhookEndpointState): WebhookEndpointJson {
  return {
    id: state.id,
    url: state.url,
    events: state.events,
    include: state.include,
    description: state.description,
    mode: state.isTest === null ? 'all' : state.isTest ? 'test' : 'live',
    domains: [...state.domains],
    status: state.status,
    disabled_reason: state.disabledReason,
    secret_set: true,
    created_at: toUnixSeconds(state.createdAt),
    updated_at: toUnixSeconds(state.updatedAt),
    last_success_at: secondsOrNull(state.lastSuccessAt),
    last_failure_at: secondsOrNull(state.lastFailureAt),
    consecutive_failures: state.consecutiveFailures,
    pending: state.pending,
    dead_letters: state.deadLetters,
  }
}
