/**
 * Which hosts take the mail of a domain, and under which TLS policy: DNS, MTA-STS, DANE, the memory of plain fallbacks,
 * and the results that are reported.
 */
import { createFindRoute, type FindRoute } from '../delivery/route/route-message.ts'
import {
  createTlsMemory,
  createTlsResults,
  type TlsMemory,
  type TlsResults,
} from '../delivery/route/tls/tls-results.ts'
import { createTlsPolicies } from '../delivery/route/tls/tls-policy.ts'
import { createTlsReports, type TlsReports } from '../delivery/route/tls/tls-reports.ts'
import { ADMINISTRATOR, OWN_MAIL, type AcceptSubmission } from '../messages/accept/send-request.ts'
import { createDnsCache } from '../network/cached-resolver.ts'
import { createMailHosts } from '../network/mail-hosts.ts'
import { measuredBy } from '../network/measured-resolver.ts'
import { createMtaSts, type MtaSts } from '../network/mta-sts.ts'
import { withFront, type Front, type Resolver, type ValidatingResolver } from '../network/resolver.ts'
import { dnsNotes, ownAddresses, startGuardedRequest, validatingResolver, type Foundation } from './foundation.ts'

export interface OutboundTls {
  findRoute: FindRoute
  tlsMemory: TlsMemory
  tlsResults: TlsResults
  sts: Pick<MtaSts, 'refresh'>
  /** Reports of other domains go out by mail too. */
  reportsBy(acceptSubmission: AcceptSubmission): TlsReports
}

const NO_STS: Pick<MtaSts, 'policyFor' | 'refresh'> = { policyFor: async () => null, refresh: async () => {} }

export async function startOutboundTls(foundation: Foundation): Promise<OutboundTls> {
  const { live, store, clock, realClock, stops, outside } = foundation
  const { delivery } = foundation.configuration.server
  const logger = foundation.logger.child({ part: 'tls' })
  const validating = cachedValidatingResolver(foundation)
  const resolver: Resolver = validating ?? withFront(foundation.resolver, dnsCache(foundation))
  // Of policies and reports: where mail may go inwards, they may too.
  const request = startGuardedRequest(foundation, {
    allowPrivateAddresses: delivery.allow_private_addresses,
    allowHttp: false,
    ownAddresses: () => ownAddresses(live.current(), 'http'),
  })
  const { findStsPolicy: find, keepStsPolicy: keep, stsPoliciesFetchedBefore: fetchedBefore } = store
  // The world of the sandbox has no web servers for policies.
  const sts =
    outside === undefined
      ? createMtaSts({
          resolver,
          request,
          clock: realClock,
          memory: { find, keep, fetchedBefore },
          onProblem(domain, { result, reason }) {
            logger.warn({ domain, result, reason }, 'MTA-STS policy not to be had')
            tlsResults.noteProblem({ domain, host: '', policy: { type: 'sts', id: '' }, result })
          },
        })
      : NO_STS
  const policies = createTlsPolicies({
    validating,
    sts: { policyFor: async (domain) => (live.current().server.delivery.mta_sts ? sts.policyFor(domain) : null) },
    settings: live.current,
  })
  const tlsMemory = createTlsMemory({ store, clock: realClock, settings: live.current, logger })
  const tlsResults = createTlsResults({ store, policies, memory: tlsMemory, clock: realClock, logger })
  await tlsMemory.start()
  stops.push(() => tlsResults.stop())
  const mailHosts = createMailHosts({
    resolver,
    allowPrivateAddresses: delivery.allow_private_addresses,
    ownAddresses: () => ownAddresses(live.current(), 'inbound'),
    mostAddresses: delivery.addresses_max,
  })
  return {
    findRoute: createFindRoute({
      mailHosts,
      clock,
      tlsPolicies: policies,
      settings: live.current,
      onTlsProblem: tlsResults.noteProblem,
    }),
    tlsMemory,
    tlsResults,
    sts,
    reportsBy: (acceptSubmission) =>
      createTlsReports({
        store,
        resolver,
        request,
        clock,
        logger,
        settings: live.current,
        sendMail: async ({ from, recipient, subject, raw, idempotencyKey }) => {
          const mail = { recipients: [recipient], from, subject, raw, idempotencyKey, ...OWN_MAIL }
          await acceptSubmission(mail, ADMINISTRATOR)
        },
      }),
  }
}

function cachedValidatingResolver(foundation: Foundation): ValidatingResolver | null {
  const { configuration, metrics, outside } = foundation
  const { dns } = configuration.server
  if (dns.validating_resolver === null || outside !== undefined) return null
  const resolver = validatingResolver(dns.validating_resolver, dns)
  return withFront(withFront(resolver, measuredBy(dnsNotes(metrics))), dnsCache(foundation))
}

function dnsCache({ configuration, clock, metrics }: Foundation): Front {
  return createDnsCache({ cache: configuration.server.dns.cache, clock, onHit: () => metrics.dnsCacheHits.inc() })
}
