/** Certificates of the doors: those of files, those by ACME where `tls.acme` asks for them, and the watch over both. */
import { createCertificates, type Certificates } from '../certificates/certificates.ts'
import { createCertificateWatch, createDoorCertificates, type DoorCertificates } from '../operations/certificates.ts'
import type { ServerCertificates } from '../base/service/server-certificates.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { Foundation } from './foundation.ts'

interface StartedCertificates {
  doorCertificates: DoorCertificates
  /** Of the start; null: there is none. */
  firstCertificates: ServerCertificates | null
  acmeChallenge: Certificates['challenge']
  certificates: { check(): void; issue(): Promise<void> }
}

export async function startCertificates(foundation: Foundation): Promise<StartedCertificates> {
  const { configuration, realClock, metrics, stops } = foundation
  const { server: settings } = configuration
  const logger = foundation.logger.child({ part: 'tls' })
  const watch = createCertificateWatch({ clock: realClock, metrics, logger })
  const { acme } = settings.tls
  if (acme === null) {
    const doorCertificates = createDoorCertificates(watch, settings, async () => [])
    return {
      doorCertificates,
      firstCertificates: await doorCertificates.open(),
      acmeChallenge: () => undefined,
      certificates: { check: watch.check, issue: async () => {} },
    }
  }
  const onIssued = (): Promise<void> => doorCertificates.renew()
  const names = namesOf(settings)
  const issuing = createCertificates({ ...foundation, clock: realClock, logger, settings: acme, names, onIssued })
  const doorCertificates = createDoorCertificates(watch, settings, issuing.pairs)
  stops.push(async () => issuing.stop())
  await issuing.open()
  return {
    doorCertificates,
    firstCertificates: await doorCertificates.open(),
    acmeChallenge: issuing.challenge,
    certificates: { check: watch.check, issue: issuing.run },
  }
}

/** One certificate for the API, the console and the SMTP doors, and one for tracked links. */
function namesOf({ hostname, public_url: publicUrl, listen, tracking }: ServerSettings): string[][] {
  const own = [...new Set([hostname, new URL(publicUrl).hostname])]
  const hasLinks = listen.http.some(({ tls, serve }) => tls && serve.includes('tracking'))
  return hasLinks && !own.includes(tracking.host) ? [own, [tracking.host]] : [own]
}
