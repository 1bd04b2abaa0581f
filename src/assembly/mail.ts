/** Who may send as whom, and all that is asked about messages: accepting, looking up, acting, suppressing, tracking. */
import { renderKeys, senderIdOf } from '../content/message-fields.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import { longestStage } from '../delivery/thread-settings.ts'
import type { AcceptanceOptions } from '../messages/accept/accept-mail.ts'
import { createBodyThread } from '../http/exchange/body-thread.ts'
import { createAcceptanceLog } from '../messages/accept/acceptance-log.ts'
import { createAcceptBatch, createAcceptMessage } from '../messages/accept/accept-message.ts'
import { createAcceptSubmission } from '../messages/accept/accept-submission.ts'
import { createMessageActions } from '../messages/lookup/act-on-message.ts'
import { createIdempotencyKeys } from '../messages/accept/idempotency.ts'
import type { ExplainOptions } from '../messages/lookup/explain-message.ts'
import { createMessageContent } from '../messages/lookup/message-content.ts'
import { createMessageLookup } from '../messages/lookup/lookup-message.ts'
import { createMailRefusal } from '../messages/accept/mail-refusal.ts'
import { createRequestReader } from '../messages/accept/request-reader.ts'
import { createPreviewMessage, type PreviewOptions } from '../messages/accept/preview-message.ts'
import { createEngagement } from '../messages/engagement/record-engagement.ts'
import { createSendingRate } from '../messages/accept/sending-rate.ts'
import { createStatistics } from '../messages/statistics/statistics.ts'
import { createSuppressions } from '../messages/suppressions/suppressions.ts'
import { createUnsubscribing } from '../messages/engagement/unsubscribe.ts'
import { interfaceAddresses } from '../network/local-addresses.ts'
import { SANDBOX_DOMAIN } from '../sandbox/sandbox.ts'
import type { DeliveryParts } from './delivery.ts'
import type { StartedCertificates } from './certificates.ts'
import type { Foundation } from './foundation.ts'
import type { Egress } from '../egress/egress.ts'
import { createApiKeys, type ApiKeys } from '../senders/api-key.ts'
import { createDomains, type Domains } from '../senders/domains.ts'
import type { Webhooks } from './webhooks.ts'

export interface MailParts extends Senders, DeliveryParts, LargeWork {
  dispatcher: Dispatcher
}

export type LargeWork = ReturnType<typeof createLargeWork>

/** What takes a thread long is done in one of its own. */
export function createLargeWork({ logger }: Pick<Foundation, 'logger'>) {
  const thread = createBodyThread({ logger })
  return { thread, reader: createRequestReader(thread.work) }
}

export type MailFeatures = ReturnType<typeof createMailFeatures>

export function createMailFeatures(foundation: Foundation, parts: MailParts) {
  const { configuration, store, clock, metrics, logger, stops, outside } = foundation
  const { domains, egress, dispatcher, reader } = parts
  const { server: settings, providers } = configuration
  const keys = renderKeys(foundation.keyRing)
  const sendingRate = createSendingRate({ clock, settings: settings.api })
  const onEvents = parts.webhookEngine.wake
  const acceptance: AcceptanceOptions = {
    store,
    clock,
    reader,
    egress,
    metrics,
    settings,
    domains,
    onEvents,
    rate: sendingRate,
    // With another world outside, all mail takes the normal way there.
    captures: outside === undefined ? 'test-and-simulated' : 'simulated',
    testSendingDomain: SANDBOX_DOMAIN,
    onQueued: dispatcher.noteQueued,
    logAccepted: createAcceptanceLog({
      logger: logger.child({ part: 'messages' }),
      recipients: () => foundation.live.current().server.log.recipients,
    }),
  }
  const engagement = createEngagement({
    ...foundation,
    reader,
    keys,
    onEvents,
    machines: providers.machines,
    storesClient: settings.tracking.store_client,
    trackingUrl: outside?.trackingUrl ?? null,
    trackingHost: settings.tracking.host,
    logger: logger.child({ part: 'tracking' }),
  })
  stops.push(() => engagement.stop())
  return {
    acceptMessage: createAcceptMessage(acceptance),
    acceptBatch: createAcceptBatch(acceptance),
    acceptSubmission: createAcceptSubmission(acceptance),
    previewMessage: createPreviewMessage({ ...acceptance, renderingOf: renderingOf(foundation, keys) }),
    messages: {
      ...createMessageLookup({
        ...foundation,
        domains,
        whyWaiting: dispatcher.whyWaiting,
        deliverProblem: parts.disk.deliverProblem,
        whereIs: whereIsAnywhere(foundation, dispatcher),
        longestStageMilliseconds: longestStage(configuration),
      }),
      ...createMessageActions(acceptance),
      content: createMessageContent({ store, clock, reader, renderingOf: renderingOf(foundation, keys) }),
    },
    suppressions: createSuppressions({ store, clock, metrics }),
    statistics: createStatistics({ store, clock }),
    idempotency: createIdempotencyKeys({ store, clock }),
    sendingRate,
    mailRefusal: createMailRefusal({
      ...foundation,
      diskProblem: parts.disk.acceptProblem,
      isDraining: foundation.nodes.isDraining,
      mostQueued: settings.api.queue_max,
    }),
    engagement,
    unsubscribing: createUnsubscribing({ ...foundation, onEvents, key: keys.unsubscribe }),
  }
}

/** Of a living node that has it only the name is known here. */
function whereIsAnywhere(
  { nodes, store, epoch }: Foundation,
  { whereIs }: Pick<Dispatcher, 'whereIs'>,
): ExplainOptions['whereIs'] {
  return async ({ id, leaseEpoch }) => {
    if (nodes.nodeId === null || leaseEpoch === epoch) return whereIs(id)
    const seen = await store.nodesSeen()
    const holder = seen.nodes.find((node) => node.epoch === leaseEpoch && node.state === 'living')
    return holder === undefined ? undefined : { kind: 'elsewhere', node: holder.nodeId }
  }
}

/** As a delivery thread renders mail of this sending domain. */
function renderingOf(
  { configuration, store, outside }: Foundation,
  keys: ReturnType<typeof renderKeys>,
): PreviewOptions['renderingOf'] {
  const { domains, headers, hostname, tracking } = configuration.server
  const settings = { keys, cfbl: headers.cfbl, referenceHeader: headers.reference, senderId: senderIdOf(hostname) }
  return async (domain) => {
    const [returnPath, host] = await Promise.all([store.findReturnPath(domain), store.findTrackingHost(domain)])
    return {
      settings,
      returnPath: returnPath ?? domains.targets.return_path,
      trackingBaseUrl: outside?.trackingUrl ?? `https://${host ?? tracking.host}`,
    }
  }
}

export interface Senders {
  domains: Domains
  apiKeys: ApiKeys
}

export function createSenders(
  foundation: Foundation,
  egress: Egress,
  { webhookEngine, linkCertificates }: Webhooks & Pick<StartedCertificates, 'linkCertificates'>,
): Senders {
  const { hostname, domains: settings, tracking, api } = foundation.configuration.server
  const logger = foundation.logger.child({ part: 'senders' })
  const domains = createDomains({
    ...foundation,
    egress,
    hostname,
    hostAddresses: interfaceAddresses,
    settings,
    logger,
    tracking: { opens: tracking.opens, clicks: tracking.clicks },
    mostDomains: api.counts_max.domains,
    linkCertificates,
    onEvents: webhookEngine.wake,
  })
  foundation.stops.push(() => domains.stop())
  return { domains, apiKeys: createApiKeys({ ...foundation, logger, mostKeys: api.counts_max.keys }) }
}
