/** Certificates of the doors: those of files, those by ACME where `tls.acme` asks for them, and the watch over both. */
import { DAY, SECOND } from '../base/clock.ts'
import type { ServerCertificates } from '../base/service/server-certificates.ts'
import { createCertificates, type Certificates } from '../certificates/certificates.ts'
import type { ChallengeType } from '../certificates/place-order.ts'
import { readHostName } from '../config/settings/network-field-types.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import { createStatistics } from '../messages/statistics/statistics.ts'
import type { CertificateAdministration } from '../http/exchange/operator-features.ts'
import { createCertificateAdministration } from '../operations/certificate-administration.ts'
import { createCertificateWatch, createDoorCertificates, type DoorCertificates } from '../operations/certificates.ts'
import type { LinkCertificates } from '../senders/verification/check-aliases.ts'
import { domainOfLinks } from '../senders/domain-of-links.ts'
import type { Foundation } from './foundation.ts'
import { nodeIdOf } from './nodes.ts'

export interface StartedCertificates {
  doorCertificates: DoorCertificates
  /** Of the start; null: there is none. */
  firstCertificates: ServerCertificates | null
  acmeChallenges: Certificates['challenges'] | null
  /** null: no door of ours serves links with TLS. */
  linkCertificates: LinkCertificates | null
  certificateAdministration: CertificateAdministration
  certificates: {
    check(): void
    issue(): Promise<void>
    /** Another node may have ordered some: our doors show those. */
    follow(): Promise<void>
  }
}

/** A certificate that ends sooner may end before the next check of its domain. */
const LEAST_REST = DAY / 2
/** Of what a node has saved, by the others: what they remember is at most 2 s old. */
const FOLLOWED_WITHIN = 3 * SECOND

export async function startCertificates(foundation: Foundation): Promise<StartedCertificates> {
  const { configuration, realClock, metrics, stops } = foundation
  const { server: settings } = configuration
  const logger = foundation.logger.child({ part: 'tls' })
  const watch = createCertificateWatch({ clock: realClock, metrics, logger })
  const told: ((name: string) => void)[] = []
  const onIssued = async (name: string): Promise<void> => {
    await doorCertificates.renew()
    for (const tell of told) tell(name)
  }
  const issuing = createIssuing(foundation, onIssued)
  const doorCertificates = createDoorCertificates(watch, settings, issuing?.pairs ?? (async () => []))
  stops.push(async () => issuing?.stop())
  await issuing?.read()
  const linkCertificates: LinkCertificates = {
    async lack(name) {
      if (doorCertificates.endFor(name) > realClock.now() + LEAST_REST) return null
      return issuing === null
        ? { isOrdered: false, problem: null }
        : { isOrdered: true, problem: await issuing.want(name) }
    },
    onIssued: (tell) => void told.push(tell),
  }
  return {
    doorCertificates,
    firstCertificates: await doorCertificates.open(),
    acmeChallenges: issuing?.challenges ?? null,
    linkCertificates: servesLinks(settings) ? linkCertificates : null,
    certificateAdministration: createCertificateAdministration({
      doorCertificates,
      issuing,
      directory: settings.tls.acme?.directory ?? null,
      keepsKey: settings.tls.acme?.keep_key ?? false,
      logger,
    }),
    certificates: {
      check: watch.check,
      issue: async () => issuing?.run(),
      async follow() {
        if ((await issuing?.read()) === true) await doorCertificates.renew()
      },
    },
  }
}

/** null: no authority is to be asked. */
function createIssuing(foundation: Foundation, onIssued: (name: string) => Promise<void>): Certificates | null {
  const { configuration, realClock, store, logger, location } = foundation
  const { server: settings } = configuration
  const { acme } = settings.tls
  if (acme === null) return null
  const statistics = createStatistics({ store, clock: realClock })
  return createCertificates({
    ...foundation,
    clock: realClock,
    logger: logger.child({ part: 'tls' }),
    settings: acme,
    proofs: proofsOf(settings),
    own: namesOf(settings),
    shownByAllAfter: nodeIdOf(location) === undefined ? 0 : FOLLOWED_WITHIN,
    links: {
      isUsed: async (name) => (await domainOfLinks(store, name)) !== null,
      async mails(names) {
        if (names.length < 2) return new Map()
        const mails = new Map<string, number>()
        const span = { dimension: 'domain', interval: 'day', after: null, before: null } as const
        for (const { name, accepted } of await statistics.find(span, { isTest: false, domains: [] })) {
          mails.set(name, (mails.get(name) ?? 0) + accepted)
        }
        const domains = await Promise.all(names.map((name) => domainOfLinks(store, name)))
        return new Map(names.map((name, index) => [name, mails.get(domains[index]?.name ?? '') ?? 0]))
      },
    },
    onIssued,
  })
}

/** One certificate for the API, the console and the SMTP doors, and one for tracked links. */
function namesOf(settings: ServerSettings): string[][] {
  const { hostname, public_url: publicUrl, tracking } = settings
  const own = [...new Set([hostname, ...namesIn(publicUrl)])]
  return servesLinks(settings) && !own.includes(tracking.host) ? [own, [tracking.host]] : [own]
}

/** None for an address, or without TLS: an authority that refuses one name refuses the whole order. */
function namesIn(publicUrl: string): string[] {
  const { protocol, hostname } = new URL(publicUrl)
  const name = readHostName(hostname)
  return protocol === 'https:' && name.ok ? [name.value] : []
}

function servesLinks({ listen }: ServerSettings): boolean {
  return listen.http.some(({ tls, serve }) => tls && serve.includes('tracking'))
}

/** At port 80 first: a handshake at 443 shows a proof to whoever asks for it meanwhile. */
function proofsOf({ listen }: ServerSettings): ChallengeType[] {
  const hasPlain = listen.http.some(({ tls, serve }) => !tls && serve.includes('acme'))
  const hasTls = listen.http.some(({ tls }) => tls)
  return [...(hasPlain ? (['http-01'] as const) : []), ...(hasTls ? (['tls-alpn-01'] as const) : [])]
}
