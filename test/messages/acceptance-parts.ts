/**
 * The real parts around acceptance: a SQLite store, a verified domain, pools; only the clock is moved by hand. Requests
 * are whole and good, each test changes what it is about.
 */
import type { Test } from 'tap'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics, type Metrics } from '../../src/base/metrics.ts'
import { createRequestReader, LARGE_WORK } from '../../src/messages/accept/request-reader.ts'
import type { AcceptanceOptions } from '../../src/messages/accept/accept-mail.ts'
import { createAcceptMessage } from '../../src/messages/accept/accept-message.ts'
import type {
  AcceptedMessages,
  Acceptance,
  AcceptMessage,
  BatchRequest,
  Caller,
  GivenAttachment,
  SendRequest,
  SharedFields,
} from '../../src/messages/accept/send-request.ts'
import { createAcceptanceLog } from '../../src/messages/accept/acceptance-log.ts'
import { createSendingRate, type SendingRate, type SendingRateOptions } from '../../src/messages/accept/sending-rate.ts'
import type { AcceptRequest } from '../../src/store/records/accept-records.ts'
import type { Store } from '../../src/store/store.ts'
import { publish, senderParts, testStore, type SenderParts } from '../senders/sender-parts.ts'

export const LIFETIME = 72 * HOUR
export const BULK_LIFETIME = 48 * HOUR
export const TEST_DOMAIN = 'ready.example.test'

const shared: SharedFields = {
  from: 'Acme <orders@acme.com>',
  subject: 'Order',
  html: '<p>Hi</p>',
  text: undefined,
  replyTo: [],
  attachments: [],
  headers: undefined,
  tags: undefined,
  metadata: undefined,
  sendAt: undefined,
  expiresIn: undefined,
  ipPool: undefined,
  stream: undefined,
  track: undefined,
  unsubscribe: undefined,
  wrongTypes: [],
}

export const sendRequest = (changes: Partial<SendRequest> = {}): SendRequest => ({
  ...shared,
  to: 'Ada <ada@example.net>',
  cc: [],
  bcc: [],
  variables: null,
  ...changes,
})

export const batchRequest = (changes: Partial<BatchRequest> = {}): BatchRequest => ({
  ...shared,
  recipients: [{ to: 'ada@example.net' }],
  isStrict: false,
  ...changes,
})

/** In this thread, whatever the size. */
export const readerHere = createRequestReader(
  async (verb, argument) => (await LARGE_WORK[verb](argument as never)).value,
)

export const file = (changes: Partial<GivenAttachment> = {}): GivenAttachment => ({
  name: 'receipt.txt',
  content: 'VGhhbmsgeW91Lgo=',
  contentType: undefined,
  contentId: undefined,
  ...changes,
})

export const callerWith = (changes: Partial<Caller> = {}): Caller => ({
  apiKeyId: null,
  mode: 'live',
  domains: [],
  source: 'api',
  ...changes,
})

export interface AcceptanceParts extends SenderParts {
  options: AcceptanceOptions
  accept: AcceptMessage
  /** What reached the store. */
  stored: AcceptRequest[]
  metrics: Metrics
  rate: SendingRate
  /** How often it was said that there is work, and that there are events. */
  told: { queued: number; events: number }
}

export interface AcceptanceSetup {
  storeFailure?: Error
  allowReservedNames?: boolean
  rates?: Partial<SendingRateOptions['settings']>
  options?: Partial<AcceptanceOptions>
}

/** Everything real, with acme.com verified; the store also tells what it was asked to accept. */
export async function acceptanceParts(t: Test, setup: AcceptanceSetup = {}): Promise<AcceptanceParts> {
  const real = await testStore(t)
  const stored: AcceptRequest[] = []
  const store: Store = {
    ...real,
    async acceptMessages(accepted) {
      if (setup.storeFailure !== undefined) throw setup.storeFailure
      // Its memory is given away.
      stored.push({ ...accepted, content: structuredClone(accepted.content) })
      return real.acceptMessages(accepted)
    },
  }
  const senders = await senderParts(t, { store })
  await verified(senders, 'acme.com')
  const metrics = createMetrics()
  const told = { queued: 0, events: 0 }
  const rate = createSendingRate({
    clock: senders.clock,
    settings: {
      requests: { count: 200, per_milliseconds: SECOND },
      requests_burst: 400,
      recipients: { count: 60_000, per_milliseconds: MINUTE },
      recipients_burst: 10_000,
      ...setup.rates,
    },
  })
  const options: AcceptanceOptions = {
    store,
    metrics,
    rate,
    clock: senders.clock,
    reader: readerHere,
    domains: senders.domains,
    egress: senders.egress,
    settings: {
      delivery: {
        allow_private_addresses: setup.allowReservedNames ?? false,
        streams: { transactional: { lifetime: LIFETIME }, bulk: { lifetime: BULK_LIFETIME } },
      },
      headers: { reference: 'X-Acme-Ref' },
      api: { batch_recipients: 1_000 },
    },
    captures: 'test-and-simulated',
    testSendingDomain: TEST_DOMAIN,
    logAccepted: createAcceptanceLog({ logger: createLogger({ level: 'silent' }), recipients: () => 'full' }),
    onQueued: () => void (told.queued += 1),
    onEvents: () => void (told.events += 1),
    ...setup.options,
  }
  return { ...senders, options, accept: createAcceptMessage(options), stored, metrics, rate, told }
}

export async function verified(senders: SenderParts, name: string, ipPool?: string): Promise<void> {
  await senders.domains.add({ name, ipPool })
  await senders.domains.stop()
  await publish(senders, name)
  await senders.clock.advance(10 * SECOND)
  const { record } = await senders.domains.verify(name)
  if (!record.verified) throw new Error(`${name}: ${JSON.stringify(record.records)}`)
}

/** What was accepted; throws for a replay. */
export async function accepted<Accepted>(acceptance: Promise<Acceptance<Accepted>>): Promise<Accepted> {
  const result = await acceptance
  if (result.kind !== 'accepted') throw new Error(result.kind)
  return result.accepted
}

/** The first message of an acceptance. */
export async function acceptedId(acceptance: Promise<Acceptance<AcceptedMessages>>): Promise<string> {
  const {
    recipients: [first],
  } = await accepted(acceptance)
  if (first === undefined) throw new Error('nothing was accepted')
  return first.messageId
}

/** `code: details` of the refusal, or "accepted". */
export function verdict(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'accepted',
    (thrown: { code?: string; details?: string }) => `${thrown.code}: ${thrown.details}`,
  )
}
