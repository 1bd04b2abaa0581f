/**
 * The certificates of our doors: read from the files or issued by an authority, handed to each open door, and watched
 * until they end. The watch sets a metric for each certificate, and logs 14 and 3 days before one ends; those that are
 * in use count, whatever lies on the disk meanwhile. The watch never throws; reading throws when a file cannot be used.
 */
import { X509Certificate } from 'node:crypto'
import { DAY, toUnixSeconds, type Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import {
  readKeyPairs,
  serverCertificates,
  type FilePair,
  type KeyPair,
  type ServerCertificates,
} from '../base/service/server-certificates.ts'
import type { ConfigurationChange } from '../config/configuration-diff.ts'
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
    use(files: readonly Pick<FilePair, 'cert_file' | 'cert'>[], issued: readonly KeyPair[]): void {
      used = [
        ...files.map(({ cert_file: file, cert }) => usedOf(cert, file, FIX)),
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

interface ReadCertificates {
  /** Certificates that are others than those that are shown, in files of the same name. */
  changes: ConfigurationChange[]
  use(): void
}

function replacedIn(read: readonly FilePair[], shown: readonly FilePair[]): ConfigurationChange[] {
  const until = ({ cert }: KeyPair): string => `until ${new X509Certificate(cert).validToDate.toISOString()}`
  return read.flatMap((pair) => {
    const before = shown.find(({ cert_file }) => cert_file === pair.cert_file)
    if (before === undefined || String(before.cert) === String(pair.cert)) return []
    const what = `certificate ${pair.cert_file}`
    return [{ kind: 'changed' as const, what, from: until(before), to: until(pair), pool: null }]
  })
}

export type DoorCertificates = ReturnType<typeof createDoorCertificates>

/** `issued`: by an authority; the first of all is the default. */
export function createDoorCertificates(
  watch: Pick<ReturnType<typeof createCertificateWatch>, 'use'>,
  { listen, tls }: Pick<ServerSettings, 'listen' | 'tls'>,
  issued: () => Promise<readonly KeyPair[]>,
) {
  const doors: ((read: ServerCertificates | null) => void)[] = []
  let files: readonly FilePair[] = []
  let fromAuthority: readonly KeyPair[] = []
  let current: ServerCertificates | null = null
  function useThese(read: readonly FilePair[], issuedNow: readonly KeyPair[]): void {
    files = read
    fromAuthority = issuedNow
    const [first, ...others] = [...files, ...fromAuthority]
    current = first === undefined ? null : serverCertificates([first, ...others], tls.min_version)
    for (const setCertificates of doors) setCertificates(current)
    watch.use(files, fromAuthority)
  }
  return {
    /** Those that are shown. */
    files: (): readonly FilePair[] => files,
    /** Those of the start, for doors that are about to open; null: there is none. Throws ProcessExit as reading does. */
    async open(): Promise<ServerCertificates | null> {
      const first = await issued()
      useThese(readKeyPairs(tls.certificates, tls.min_version), first)
      return current
    },
    /** Until when clients accept our doors under this name, Unix milliseconds; 0: they do not. */
    endFor: (name: string): number => current?.endFor(name) ?? 0,
    /** A door is open, with the certificates of the start: it is handed those that come later. */
    serve: (setCertificates: (read: ServerCertificates | null) => void): void => void doors.push(setCertificates),
    /** Reads these files, once for all doors; `use` puts them to use. Throws when one cannot be used. */
    read(changed: CertificateFiles): ReadCertificates {
      const read = readKeyPairs(changed, tls.min_version)
      // The files have none any more, and a door that is open needs one: the door closes at the next start.
      const isNeeded = listen.http.some((door) => door.tls) || listen.submission.some((door) => door.tls !== 'none')
      if (read.length + fromAuthority.length === 0 && isNeeded) return { changes: [], use() {} }
      // Beside what an authority has issued by then.
      return { changes: replacedIn(read, files), use: () => useThese(read, fromAuthority) }
    },
    /** An authority has issued another one. The files are those that are in use: somebody may be writing to them. */
    async renew(): Promise<void> {
      useThese(files, await issued())
    },
  }
}
