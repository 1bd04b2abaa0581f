/**
 * The certificates of our doors: read from the files, handed to each open door, and watched until they end.
 *
 * The watch sets a metric for each certificate, and logs 14 and 3 days before one ends; those that are in use count,
 * whatever lies on the disk meanwhile. The watch never throws; reading throws when a file cannot be used.
 */
import { X509Certificate } from 'node:crypto'
import { readRegularFile } from '../base/regular-file.ts'
import { DAY, toUnixSeconds, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import { readServerCertificates, type ServerCertificates } from '../base/service/server-certificates.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'

type CertificateFiles = ServerSettings['tls']['certificates']

interface CertificateWatch {
  /** These files are used from now on. */
  use(files: CertificateFiles): void
  /** Says what ends soon; each thing once. */
  check(): void
}

interface CertificateWatchOptions {
  /** Of the real world. */
  clock: Clock
  metrics: Pick<Metrics, 'certificateExpiry'>
  logger: Logger
}

/** Renewal is due; renewal does not work. */
const WARN_BEFORE = 14 * DAY
const ALARM_BEFORE = 3 * DAY
const FIX = 'renew it, then run: sternpost reload'

interface UsedCertificate {
  file: string
  endsAt: number
  told: 'nothing' | 'warn' | 'error'
}

export function createCertificateWatch({ clock, metrics, logger }: CertificateWatchOptions): CertificateWatch {
  let used: UsedCertificate[] = []

  function usedFile(file: string): UsedCertificate[] {
    try {
      const endsAt = new X509Certificate(readRegularFile(file)).validToDate.getTime()
      return [{ file, endsAt, told: 'nothing' }]
    } catch (thrown) {
      // A moment ago the doors could read it.
      logger.warn({ file, error: errorText(thrown) }, 'the end of a certificate is not known')
      return []
    }
  }

  function check(): void {
    const now = clock.now()
    for (const certificate of used) {
      const left = certificate.endsAt - now
      if (left > WARN_BEFORE) continue
      const level = left > ALARM_BEFORE ? 'warn' : 'error'
      if (certificate.told === level) continue
      certificate.told = level
      const what = left > 0 ? 'certificate ends soon' : 'certificate has expired'
      logger[level]({ file: certificate.file, days_left: Math.floor(left / DAY), fix: FIX }, what)
    }
  }

  return {
    use(files) {
      used = files.flatMap(({ cert_file: file }) => usedFile(file))
      metrics.certificateExpiry.reset()
      for (const { file, endsAt } of used) metrics.certificateExpiry.set({ certificate: file }, toUnixSeconds(endsAt))
      check()
    },
    check,
  }
}

export interface DoorCertificates {
  /** A door is open, with the certificates of the start: it is handed those that are read later. */
  serve(setCertificates: (read: ServerCertificates | null) => void): void
  /** Reads these files, once for all doors; what it returns puts them to use. Throws when one cannot be used. */
  read(files: CertificateFiles): () => void
}

/** `settings`: of the start. */
export function createDoorCertificates(
  watch: Pick<CertificateWatch, 'use'>,
  { listen, tls }: Pick<ServerSettings, 'listen' | 'tls'>,
): DoorCertificates {
  const doors: ((read: ServerCertificates | null) => void)[] = []
  return {
    serve: (setCertificates) => void doors.push(setCertificates),
    read(files) {
      // The files have none any more, and a door that is open needs one: the door closes at the next start.
      if (files.length === 0 && needsCertificate(listen)) return () => {}
      const read = files.length === 0 ? null : readServerCertificates(files, tls.min_version)
      return () => {
        for (const setCertificates of doors) setCertificates(read)
        watch.use(files)
      }
    },
  }
}

function needsCertificate({ http, submission }: ServerSettings['listen']): boolean {
  return http.some(({ tls }) => tls) || submission.some(({ tls }) => tls !== 'none')
}
