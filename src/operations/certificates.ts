/**
 * The certificates of our doors: read from the files, handed to each open door, and watched until they end. The watch
 * sets a metric for each certificate, and logs 14 and 3 days before one ends; those that are in use count, whatever
 * lies on the disk meanwhile. The watch never throws; reading throws when a file cannot be used.
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

/** Renewal is due; renewal does not work. */
const WARN_BEFORE = 14 * DAY
const ALARM_BEFORE = 3 * DAY
const FIX = 'renew it, then run: sternpost reload'

interface WatchOptions {
  clock: Clock
  metrics: Pick<Metrics, 'certificateExpiry'>
  logger: Logger
}

interface UsedCertificate {
  file: string
  endsAt: number
  told: 'nothing' | 'warn' | 'error'
}

/** `clock`: of the real world. */
export function createCertificateWatch({ clock, metrics, logger }: WatchOptions) {
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

  /** Says what ends soon; each thing once. */
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
    /** These files are used from now on. */
    use(files: CertificateFiles): void {
      used = files.flatMap(({ cert_file: file }) => usedFile(file))
      metrics.certificateExpiry.reset()
      for (const { file, endsAt } of used) metrics.certificateExpiry.set({ certificate: file }, toUnixSeconds(endsAt))
      check()
    },
    check,
  }
}

export type DoorCertificates = ReturnType<typeof createDoorCertificates>

export function createDoorCertificates(
  watch: Pick<ReturnType<typeof createCertificateWatch>, 'use'>,
  { listen, tls }: Pick<ServerSettings, 'listen' | 'tls'>,
) {
  const doors: ((read: ServerCertificates | null) => void)[] = []
  return {
    /** A door is open, with the certificates of the start: it is handed those that are read later. */
    serve: (setCertificates: (read: ServerCertificates | null) => void): void => void doors.push(setCertificates),
    /** Reads these files, once for all doors; what it returns puts them to use. Throws when one cannot be used. */
    read(files: CertificateFiles): () => void {
      // The files have none any more, and a door that is open needs one: the door closes at the next start.
      const isNeeded = listen.http.some((door) => door.tls) || listen.submission.some((door) => door.tls !== 'none')
      if (files.length === 0 && isNeeded) return () => {}
      const read = files.length === 0 ? null : readServerCertificates(files, tls.min_version)
      return () => {
        for (const setCertificates of doors) setCertificates(read)
        watch.use(files)
      }
    },
  }
}
