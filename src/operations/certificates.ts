/**
 * The certificates of our doors: read from the files or issued by an authority, handed to each open door, and watched
 * until they end. The watch sets a metric for each certificate, and logs 14 and 3 days before one ends; those that are
 * in use count, whatever lies on the disk meanwhile. The watch never throws; reading throws when a file cannot be used.
 */
import { X509Certificate } from 'node:crypto'
import { readRegularFile } from '../base/regular-file.ts'
import { DAY, toUnixSeconds, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import {
  readKeyPairs,
  serverCertificates,
  type KeyPair,
  type ServerCertificates,
} from '../base/service/server-certificates.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'

type CertificateFiles = ServerSettings['tls']['certificates']

/** Renewal is due; renewal does not work. */
const WARN_BEFORE = 14 * DAY
const ALARM_BEFORE = 3 * DAY
const FIX = 'renew it, then run: sternpost reload'
const FIX_OF_AUTHORITY = 'sternpost doctor tls; the log says why it is not renewed'

interface WatchOptions {
  clock: Clock
  metrics: Pick<Metrics, 'certificateExpiry'>
  logger: Logger
}

interface UsedCertificate {
  /** Its file, or the names it was issued for. */
  label: string
  fix: string
  endsAt: number
  told: 'nothing' | 'warn' | 'error'
}

/** `clock`: of the real world. */
export function createCertificateWatch({ clock, metrics, logger }: WatchOptions) {
  let used: UsedCertificate[] = []

  function usedFile(file: string): UsedCertificate[] {
    try {
      return [usedOf(readRegularFile(file), file, FIX)]
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
      logger[level]({ file: certificate.label, days_left: Math.floor(left / DAY), fix: certificate.fix }, what)
    }
  }

  return {
    /** These are used from now on. */
    use(files: CertificateFiles, issued: readonly KeyPair[]): void {
      used = [
        ...files.flatMap(({ cert_file: file }) => usedFile(file)),
        ...issued.map(({ cert }) => usedOf(cert, new X509Certificate(cert).subjectAltName ?? '', FIX_OF_AUTHORITY)),
      ]
      metrics.certificateExpiry.reset()
      for (const { label, endsAt } of used) metrics.certificateExpiry.set({ certificate: label }, toUnixSeconds(endsAt))
      check()
    },
    check,
  }
}

function usedOf(certificate: string | Buffer, label: string, fix: string): UsedCertificate {
  return { label, fix, endsAt: new X509Certificate(certificate).validToDate.getTime(), told: 'nothing' }
}

export type DoorCertificates = ReturnType<typeof createDoorCertificates>

/** `issued`: by an authority; the first of all is the default. */
export function createDoorCertificates(
  watch: Pick<ReturnType<typeof createCertificateWatch>, 'use'>,
  { listen, tls }: Pick<ServerSettings, 'listen' | 'tls'>,
  issued: () => Promise<readonly KeyPair[]>,
) {
  const doors: ((read: ServerCertificates | null) => void)[] = []
  let files = tls.certificates
  let fromAuthority: readonly KeyPair[] = []
  let current: ServerCertificates | null = null
  const combined = (pairs: readonly KeyPair[]): ServerCertificates | null => {
    const [first, ...others] = [...pairs, ...fromAuthority]
    return first === undefined ? null : serverCertificates([first, ...others], tls.min_version)
  }
  const handOut = (read: ServerCertificates | null): void => {
    current = read
    for (const setCertificates of doors) setCertificates(read)
    watch.use(files, fromAuthority)
  }
  return {
    files: (): CertificateFiles => files,
    /** Those of the start, for doors that are about to open; null: there is none. Throws ProcessExit as reading does. */
    async open(): Promise<ServerCertificates | null> {
      fromAuthority = await issued()
      current = combined(readKeyPairs(files, tls.min_version))
      watch.use(files, fromAuthority)
      return current
    },
    /** Until when clients accept our doors under this name, Unix milliseconds; 0: they do not. */
    endFor: (name: string): number => current?.endFor(name) ?? 0,
    /** A door is open, with the certificates of the start: it is handed those that come later. */
    serve: (setCertificates: (read: ServerCertificates | null) => void): void => void doors.push(setCertificates),
    /** Reads these files, once for all doors; what it returns puts them to use. Throws when one cannot be used. */
    read(changed: CertificateFiles): () => void {
      const read = combined(readKeyPairs(changed, tls.min_version))
      // The files have none any more, and a door that is open needs one: the door closes at the next start.
      const isNeeded = listen.http.some((door) => door.tls) || listen.submission.some((door) => door.tls !== 'none')
      if (read === null && isNeeded) return () => {}
      return () => {
        files = changed
        handOut(read)
      }
    },
    /** An authority has issued another one. */
    async renew(): Promise<void> {
      fromAuthority = await issued()
      handOut(combined(readKeyPairs(files, tls.min_version)))
    },
  }
}
