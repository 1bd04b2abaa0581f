/**
 * How long the certificates of our doors are still good: a metric for each, and a log line 14 and 3 days before one
 * ends. Looked at when they are read, and by a job; those that are in use count, whatever lies on the disk meanwhile.
 * Never throws.
 */
import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { DAY, toUnixSeconds } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'

export interface CertificateWatch {
  /** These files are used from now on. */
  use(files: ServerSettings['tls']['certificates']): void
  /** Says what ends soon; each thing once. */
  check(): void
}

export interface CertificateWatchOptions {
  /** Of the real world. */
  clock: Clock
  metrics: Pick<Metrics, 'certificateExpiry'>
  logger: Logger
}

/** Renewal is due; renewal does not work. */
const WARN_BEFORE = 14 * DAY
const ALARM_BEFORE = 3 * DAY
const FIX = 'renew it, then run: sternpost reload'

interface Used {
  file: string
  endsAt: number
  told: 'nothing' | 'warn' | 'error'
}

export function createCertificateWatch({ clock, metrics, logger }: CertificateWatchOptions): CertificateWatch {
  let used: Used[] = []

  function usedFile(file: string): Used[] {
    try {
      const endsAt = new X509Certificate(readFileSync(file)).validToDate.getTime()
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
