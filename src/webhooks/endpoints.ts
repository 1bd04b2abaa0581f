/**
 * Webhook endpoints: registering, showing, changing, removing them, and rotating their secrets (http/README.md
 * "Webhooks", webhooks/README.md "Secret rotation").
 *
 * Throws ServiceError: `invalid_request` names every wrong field at once, and nothing is stored then; `not_found`;
 * `conflict` for one endpoint too many and for a rotation during another. A secret that the caller gave is never shown
 * again; a generated one is in the answer once. The same URL may be registered repeatedly.
 */
import { randomBytes } from 'node:crypto'
import { SECOND, toUnixSeconds, type Clock } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { newIdentifier } from '../base/identifier.ts'
import type { KeyRing } from '../base/key-ring.ts'
import { GIVEN_EVENT_KINDS } from '../mail/event.ts'
import type { GuardedRequest } from '../network/guarded-request.ts'
import type { Store } from '../store/store.ts'
import type {
  DisabledReason,
  WebhookEndpointChange,
  WebhookEndpointRecord,
  WebhookEndpointState,
} from '../store/records/webhook-records.ts'
import { isIncludedField, refuse, refuseProblems, secretWarnings } from './endpoint-rules.ts'
import { sealSecret } from './endpoint-secret.ts'

/** Times in Unix seconds; never with a secret. */
interface WebhookEndpointView {
  id: string
  url: string
  events: string[]
  include: string[]
  description: string | null
  status: 'enabled' | 'disabled'
  disabled_reason: DisabledReason | null
  secret_set: true
  created_at: number
  updated_at: number
  last_success_at: number | null
  last_failure_at: number | null
  consecutive_failures: number
  pending: number
  dead_letters: number
}

export interface RegisterEndpointRequest {
  url: string
  /** null: the five given kinds. */
  events: string[] | null
  /** Left out: none. */
  include?: string[]
  /** null: one is generated. */
  secret: string | null
  description: string | null
}

/** What is left out stays. */
interface ChangeEndpointRequest {
  url?: string
  events?: string[]
  include?: string[]
  description?: string
  status?: 'enabled' | 'disabled'
}

interface RegisteredEndpoint {
  endpoint: WebhookEndpointView
  /** Only when it was generated: to be shown this once. */
  secret: string | null
  warnings: string[]
}

interface RotatedSecret {
  /** Only when it was generated. */
  secret: string | null
  /** A whole second. */
  switchAt: number
  warnings: string[]
}

export interface WebhookEndpoints {
  register(request: RegisterEndpointRequest): Promise<RegisteredEndpoint>
  /** Newest first. */
  list(limit: number, after: string | null): Promise<{ endpoints: WebhookEndpointView[]; next: string | null }>
  find(id: string): Promise<WebhookEndpointView>
  update(id: string, change: ChangeEndpointRequest): Promise<WebhookEndpointView>
  /** What waits for it is never sent. */
  remove(id: string): Promise<void>
  /** null secret: one is generated. The old secret signs for `graceSeconds` more; null: a day. */
  rotateSecret(id: string, request: { secret: string | null; graceSeconds: number | null }): Promise<RotatedSecret>
}

interface WebhookEndpointsOptions {
  store: Store
  clock: Clock
  keyRing: KeyRing
  guardedRequest: GuardedRequest
  /** Endpoints in all; left out or null: no limit. */
  mostEndpoints?: number | null
  /** What waits may go out now. */
  onEnabled?: () => void
}

/** 32 random bytes are 43 characters of base64url. */
const GENERATED_SECRET_BYTES = 32
const SECRET_PREFIX = 'whsec_'
/** webhooks/README.md "Secret rotation", in seconds. */
const DEFAULT_GRACE = 86_400
const MOST_GRACE = 604_800
const NOT_GIVEN = { url: null, events: null, include: null, secret: null, description: null }

export function createWebhookEndpoints(options: WebhookEndpointsOptions): WebhookEndpoints {
  const { store, clock, keyRing, guardedRequest, mostEndpoints = null } = options
  return {
    async register(request) {
      const { url, description, events, include = [] } = request
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
        status: 'enabled',
        sealedSecret: sealSecret(keyRing, id, request.secret ?? generated ?? ''),
        createdAt: now,
      }
      await store.addWebhookEndpoint(record, mostEndpoints)
      return { endpoint: endpointView(newState(record)), secret: generated, warnings: secretWarnings(request.secret) }
    },

    async list(limit, after) {
      const { endpoints, next } = await store.listWebhookEndpoints(limit, after)
      return { endpoints: endpoints.map(endpointView), next }
    },

    find: async (id) => endpointView(known(id, await store.findWebhookEndpoint(id))),

    async update(id, { url, events, include, description, status }) {
      await refuseProblems(
        {
          ...NOT_GIVEN,
          url: url ?? null,
          events: events ?? null,
          include: include ?? null,
          description: description ?? null,
        },
        guardedRequest,
      )
      const change: WebhookEndpointChange = {}
      if (url !== undefined) change.url = url
      if (events !== undefined) change.events = events
      if (include !== undefined) change.include = include.filter(isIncludedField)
      if (description !== undefined) change.description = description
      if (status !== undefined) change.status = status
      const state = known(id, await store.updateWebhookEndpoint(id, change, clock.now()))
      if (status === 'enabled') options.onEnabled?.()
      return endpointView(state)
    },

    async remove(id) {
      if (!(await store.removeWebhookEndpoint(id, clock.now()))) throw unknownEndpoint(id)
    },

    async rotateSecret(id, { secret, graceSeconds }) {
      await refuseProblems({ ...NOT_GIVEN, secret }, guardedRequest)
      if (graceSeconds !== null && (graceSeconds < 0 || graceSeconds > MOST_GRACE)) {
        refuse([`grace_seconds: must be from 0 to ${MOST_GRACE}`])
      }
      const now = clock.now()
      // A whole second: the one that is told.
      const switchAt = (toUnixSeconds(now) + (graceSeconds ?? DEFAULT_GRACE)) * SECOND
      const generated = secret === null ? generateSecret() : null
      const sealedSecret = sealSecret(keyRing, id, secret ?? generated ?? '')
      const result = known(id, await store.rotateWebhookSecret(id, { sealedSecret, switchAt, now }))
      if (result.kind === 'under-way') {
        const at = toUnixSeconds(result.switchAt)
        throw new ServiceError('conflict', `an earlier rotation takes effect at ${at}; the next one has to wait for it`)
      }
      return { secret: generated, switchAt, warnings: secretWarnings(secret) }
    },
  }
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

function endpointView(state: WebhookEndpointState): WebhookEndpointView {
  return {
    id: state.id,
    url: state.url,
    events: state.events,
    include: state.include,
    description: state.description,
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

export function secondsOrNull(milliseconds: number | null): number | null {
  return milliseconds === null ? null : toUnixSeconds(milliseconds)
}
