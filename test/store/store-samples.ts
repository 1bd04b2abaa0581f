/**
 * Requests and outcomes as the tests of the store use them: whole and valid, each test changes what it is about.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import type { Bounce, DeliveryAttempt, DeliveryOutcome, TlsFacts } from '../../src/mail/reply/delivery-outcome.ts'
import { bouncedData, deliveredData, type ServiceEvent } from '../../src/mail/event.ts'
import type { StoredContent } from '../../src/mail/message.ts'
import { EVERYTHING } from '../../src/mail/reach.ts'
import type { AcceptRequest, NewMessage } from '../../src/store/records/accept-records.ts'
import type { MessageView, SearchMessagesRequest } from '../../src/store/records/lookup-records.ts'
import type { ClaimedMessage, OutcomeRecord, RowClaim } from '../../src/store/records/claim-records.ts'
import type {
  ApiKeyRecord,
  DkimKeyRecord,
  DomainCheckResult,
  DomainRecord,
} from '../../src/store/records/sender-records.ts'
import type { Store } from '../../src/store/store.ts'
import type { SuppressionRecord } from '../../src/store/records/suppression-records.ts'
import type { WebhookEndpointRecord } from '../../src/store/records/webhook-records.ts'
import { claimMessages } from '../support/claim-messages.ts'

export const NOW = Date.UTC(2026, 10, 21, 12)
export const LIFETIME = 72 * 3_600_000
export const LEASE = 15 * 60_000
export const POOL = 'default'

export const sampleContent: StoredContent = {
  from: { name: 'Acme', address: 'orders@acme.com' },
  replyTo: [
    { name: null, address: 'help@acme.com' },
    { name: 'Zoë', address: 'two@acme.com' },
  ],
  subject: 'Order {{number}}',
  html: '<p>Grüße, {{name}}</p>',
  text: null,
  attachments: [],
  hasVariables: true,
  addressees: null,
  headers: [],
  tags: {},
  metadata: {},
  tracking: { opens: true, clicks: true },
  unsubscribe: null,
  raw: null,
}

export const sampleBounce: Bounce = {
  type: 'hard',
  category: 'invalid_recipient',
  code: '5.1.1',
  description: '550 5.1.1 no such user',
}

export const sampleTls: TlsFacts = {
  protocol: 'TLSv1.3',
  cipher: 'TLS_AES_256_GCM_SHA384',
  fingerprint: 'ab'.repeat(32),
  isVerified: true,
  policy: 'sts 20261121',
  problem: null,
}

export function newMessage(changes: Partial<NewMessage> = {}): NewMessage {
  return {
    id: newIdentifier('msg', NOW),
    to: { name: null, address: 'ada@example.com' },
    recipientDomain: 'example.com',
    variables: {},
    expiresAt: NOW + LIFETIME,
    isCaptured: false,
    ...changes,
  }
}

export function acceptRequest(changes: Partial<AcceptRequest> = {}): AcceptRequest {
  return {
    now: NOW,
    apiKeyId: null,
    isTest: false,
    domain: 'acme.com',
    pool: POOL,
    stream: 'transactional',
    sendAt: null,
    content: sampleContent,
    messages: [newMessage()],
    batch: null,
    retryOf: null,
    idempotency: null,
    ...changes,
  }
}

/** Accepts one message and returns its identifier. */
export async function acceptOne(
  store: Store,
  changes: Partial<AcceptRequest> = {},
  messageChanges: Partial<NewMessage> = {},
): Promise<string> {
  const message = newMessage(messageChanges)
  await store.acceptMessages(acceptRequest({ messages: [message], ...changes }))
  return message.id
}

export function lookUp(store: Store, id: string, now = NOW): Promise<MessageView | null> {
  return store.lookupMessage(id, now)
}

export function claim(store: Store, epoch: number, now = NOW, limit = 100): Promise<ClaimedMessage[]> {
  return claimMessages(store, { now, epoch, leaseUntil: now + LEASE, pools: [POOL], limit })
}

/** What the store's verbs know a claimed row by. */
export function rowClaim(claimed: RowClaim | undefined): RowClaim {
  if (claimed === undefined) throw new Error('nothing was claimed')
  return { key: claimed.key, claim: claimed.claim }
}

/** A begun epoch with one message accepted and claimed. */
export async function claimedMessage(store: Store): Promise<{ epoch: number; message: ClaimedMessage }> {
  const { epoch } = await store.beginEpoch(NOW, NOW)
  await acceptOne(store)
  const [message] = await claim(store, epoch)
  if (message === undefined) throw new Error('nothing was claimed')
  return { epoch, message }
}

export function attempt(changes: Partial<DeliveryAttempt> = {}): DeliveryAttempt {
  return {
    at: NOW,
    durationMilliseconds: 840,
    ip: '127.0.0.11',
    result: 'delivered',
    stage: 'dot',
    reply: '250 2.0.0 OK',
    host: 'mx.example.com',
    localAddress: '127.0.0.11',
    remoteAddress: '127.0.0.25',
    tls: sampleTls,
    ...changes,
  }
}

/** The outcome with its attempt and, for final ones, the event that the dispatcher gives. */
export function outcomeRecord(
  message: ClaimedMessage,
  outcome: DeliveryOutcome,
  changes: Partial<DeliveryAttempt> = {},
): OutcomeRecord {
  return {
    ...rowClaim(message),
    attempt: attempt({ result: outcome.kind, ...changes }),
    outcome,
    isp: 'gmail',
    category: null,
    keepIpUntil: null,
    avoidIps: [],
    refund: null,
    events: eventsOf(message, outcome),
    suppresses: false,
    transcript: null,
  }
}

export const delivered: DeliveryOutcome = { kind: 'delivered' }
export const bounced: DeliveryOutcome = { kind: 'bounced', bounce: sampleBounce }
export const deferredUntil = (retryAt: number): DeliveryOutcome => ({ kind: 'deferred', retryAt })

function eventsOf(message: ClaimedMessage, outcome: DeliveryOutcome): ServiceEvent[] {
  const id = newIdentifier('evt', NOW)
  switch (outcome.kind) {
    case 'delivered':
      return [{ id, kind: 'email.delivered', at: NOW, data: deliveredData(message.id, message.recipient, 'gmail') }]
    case 'bounced':
    case 'expired':
      return [{ id, kind: 'email.bounced', at: NOW, data: bouncedData(message.id, message.recipient, outcome.bounce) }]
    default:
      return []
  }
}

export function webhookEndpoint(changes: Partial<WebhookEndpointRecord> = {}): WebhookEndpointRecord {
  return {
    id: newIdentifier('wh', NOW),
    url: 'https://hooks.example.com/mail',
    events: ['email.delivered', 'email.bounced'],
    include: [],
    isTest: false,
    domains: [],
    description: null,
    status: 'enabled',
    sealedSecret: Uint8Array.of(1, 2, 3),
    createdAt: NOW,
    ...changes,
  }
}

export function apiKey(changes: Partial<ApiKeyRecord> = {}): ApiKeyRecord {
  return {
    id: newIdentifier('key', NOW),
    name: 'shop',
    mode: 'live',
    scopes: ['send'],
    domains: ['acme.com'],
    allowedIps: ['127.0.0.0/8'],
    prefix: 'sk_live_',
    last4: 'wxyz',
    createdAt: NOW,
    expiresAt: null,
    lastUsedAt: null,
    revokedAt: null,
    ...changes,
  }
}

export function domainRecord(changes: Partial<DomainRecord> = {}): DomainRecord {
  return {
    name: 'acme.com',
    state: 'pending',
    keys: [dkimKey()],
    returnPath: 'bounces.acme.com',
    trackingDomain: 't.acme.com',
    tracking: { opens: true, clicks: true },
    allowSubdomains: false,
    ipPool: null,
    createdAt: NOW,
    verifiedAt: null,
    lastCheckedAt: null,
    nextCheckAt: NOW,
    failingSince: null,
    failedChecks: 0,
    degradedAt: null,
    checks: [],
    ...changes,
  }
}

export function dkimKey(changes: Partial<DkimKeyRecord> = {}): DkimKeyRecord {
  return {
    selector: 'ps1',
    algorithm: 'rsa-sha256',
    role: 'active',
    publicKey: 'MIIB',
    createdAt: NOW,
    seenAt: null,
    sealedPrivateKey: Buffer.of(9, 8, 7),
    retireAt: null,
    ...changes,
  }
}

/** A check that found everything right. */
export function domainCheck(changes: Partial<DomainCheckResult> = {}): DomainCheckResult {
  return {
    name: 'acme.com',
    now: NOW + 5,
    state: 'verified',
    verifiedAt: NOW + 5,
    nextCheckAt: NOW + 21_600_000,
    failingSince: null,
    failedChecks: 0,
    degradedAt: null,
    checks: [],
    keys: [dkimKey()],
    events: [],
    ...changes,
  }
}

/** The suppression list of live mail, whoever's. */
export const LIVE_SUPPRESSIONS: Parameters<Store['listSuppressions']>[0] = {
  isTest: false,
  email: null,
  domains: [],
  reason: null,
  scope: null,
  since: null,
  limit: 100,
  after: null,
}

/** A claimed row that waits for its first attempt. */
export const claimedRow = (claim: number, changes: Partial<ClaimedMessage> = {}): ClaimedMessage => ({
  key: claim,
  claim,
  id: `msg_${claim}`,
  contentId: 1,
  pool: POOL,
  domain: 'acme.test',
  stream: 'bulk',
  recipient: 'a@dest.test',
  recipientDomain: 'dest.test',
  attempts: 0,
  acceptedAt: 0,
  expiresAt: Infinity,
  pathFailures: 0,
  ambiguousCount: 0,
  isPossibleDuplicate: false,
  route: 'dest.test',
  lastIp: null,
  keepIpUntil: null,
  avoidIps: [],
  isCaptured: false,
  ...changes,
})

export function suppressionRecord(changes: Partial<SuppressionRecord> = {}): SuppressionRecord {
  return {
    id: newIdentifier('sup', NOW),
    email: 'ada@example.com',
    reason: 'manual',
    scope: 'all',
    domain: null,
    owners: [],
    isTest: false,
    messageId: null,
    createdAt: NOW,
    ...changes,
  }
}

/** Finds all messages. */
export const anything: SearchMessagesRequest = {
  recipient: null,
  from: null,
  state: null,
  batchId: null,
  subject: null,
  tag: null,
  isp: null,
  ip: null,
  since: null,
  until: null,
  reach: EVERYTHING,
  limit: 100,
  after: null,
  now: NOW,
}
