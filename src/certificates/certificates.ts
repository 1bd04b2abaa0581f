/**
 * Certificates by themselves: which names need one, when each is ordered and renewed, what went wrong (certificates/
 * README.md). `run` never rejects for what an authority does: that is noted at the name, in words, and tried again later.
 */
import { randomInt, X509Certificate } from 'node:crypto'
import { DAY, HOUR, MINUTE, SECOND, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { Logger } from '../base/logger.ts'
import type { KeyPair } from '../base/service/server-certificates.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { CertificateRecord } from '../store/records/certificate-records.ts'
import type { Store } from '../store/store.ts'
import { AcmeRefusal, loadAcmeLibrary, type AcmeLibrary } from './acme-client.ts'
import { certificateSealedAs, NameRefusal, placeOrder, type OrderParts } from './place-order.ts'

interface CertificatesOptions {
  store: Pick<Store, 'acmeAccount' | 'saveAcmeAccount' | 'certificates' | 'saveCertificate'>
  keyRing: KeyRing
  /** Of the real world: certificates end by it. */
  clock: Clock
  logger: Logger
  settings: NonNullable<ServerSettings['tls']['acme']>
  /** What one certificate each is for. */
  names: readonly string[][]
  /** There is another one to serve. */
  onIssued(): Promise<void>
}

export type Certificates = ReturnType<typeof createCertificates>

/** After so many failures at one authority it is the turn of the next. */
const TRIES_EACH = 3
/** Before the second, third, ... try. The last one repeats. */
const WAITS = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, DAY]
/** Share of its life after which a certificate is renewed. */
const RENEWED_AFTER = 2 / 3
/** So that not all servers of the world ask at the full hour. */
const SPREAD_SECONDS = 3_600

export function createCertificates(options: CertificatesOptions) {
  const { store, keyRing, clock, logger, settings, names, onIssued } = options
  const challenges = new Map<string, string>()
  const pairs = new Map<string, KeyPair>()
  const ending = new AbortController()
  let library: Promise<AcmeLibrary> | undefined
  let running: Promise<void> | undefined
  const load = (): Promise<AcmeLibrary> => (library ??= loadAcmeLibrary(settings.ca_file))
  const { signal: ended } = ending
  const order = createOrdering(options, async () => {
    return { store, keyRing, challenges, ended, email: settings.email, library: await load() }
  })

  function use({ name, issued }: CertificateRecord): void {
    if (issued === null) return
    try {
      pairs.set(name, { cert: issued.chain, key: keyRing.open(issued.sealedKey, certificateSealedAs(name)) })
    } catch (thrown) {
      logger.warn({ name, error: errorText(thrown) }, 'the key of a certificate does not open: another is ordered')
    }
  }

  /** One after the other: an authority counts how many come at once. */
  async function orderAll(): Promise<void> {
    for (const wanted of names) {
      const record = await recordOf(store, wanted)
      const isUsable = record.issued !== null && pairs.has(record.name) && isFor(record.issued.chain, wanted)
      const isDue = !isUsable || (record.issued?.renewAt ?? 0) <= clock.now()
      if (!isDue || record.nextTryAt > clock.now() || ended.aborted) continue
      const issued = await order(record)
      if (issued === null) continue
      use(issued)
      await onIssued()
    }
  }

  return {
    /** Of the store: for the doors that are about to open. */
    async open(): Promise<void> {
      for (const record of await store.certificates()) use(record)
    },
    /** What was issued, for the doors; until the first one comes, one that nobody trusts. */
    async pairs(): Promise<readonly KeyPair[]> {
      const wanted = names.flatMap(([name = '']) => pairs.get(name) ?? [])
      return wanted.length > 0 ? wanted : [await standIn(await load(), names[0]?.[0] ?? '')]
    },
    /** What port 80 answers for a token of http-01. */
    challenge: (token: string): string | undefined => challenges.get(token),
    /** Orders what is missing, or has to be renewed. Whoever comes while it runs waits for the same run. */
    run: (): Promise<void> => (running ??= orderAll().finally(() => (running = undefined))),
    stop: (): void => ending.abort(),
  }
}

async function recordOf(store: Pick<Store, 'certificates'>, wanted: readonly string[]): Promise<CertificateRecord> {
  const [name = ''] = wanted
  const names = [...wanted]
  const known = (await store.certificates()).find((each) => each.name === name)
  if (known === undefined) return { name, names, issued: null, order: null, failures: 0, nextTryAt: 0, problem: null }
  return known.names.join() === names.join() ? known : { ...known, names, order: null, nextTryAt: 0 }
}

/** null: there is none yet; why, and when it is tried again, is saved. */
function createOrdering(
  { store, keyRing, clock, logger, settings }: CertificatesOptions,
  parts: () => Promise<OrderParts>,
) {
  const directories = [settings.directory, ...settings.fallback]
  return async (record: CertificateRecord): Promise<CertificateRecord | null> => {
    const turn = Math.floor(record.failures / TRIES_EACH) % directories.length
    const directory = directories[turn] ?? settings.directory
    const { names } = record
    let current = record
    const save = (change: Partial<CertificateRecord>): Promise<void> => {
      current = { ...current, ...change }
      return store.saveCertificate(current)
    }
    const { ended, ...others } = await parts()
    try {
      const { chain, key, parsed } = await placeOrder(
        { ...others, ended },
        {
          directory,
          names,
          order: record.order?.directory === directory ? record.order : null,
          saveOrder: (placed) => save({ order: placed }),
        },
      )
      const issued = {
        chain,
        sealedKey: keyRing.seal(key, certificateSealedAs(record.name)),
        renewAt: renewalOf(parsed),
      }
      await save({ issued, order: null, failures: 0, nextTryAt: 0, problem: null })
      logger.info({ names, directory, ends_at: parsed.validToDate.toISOString() }, 'certificate issued')
      return current
    } catch (thrown) {
      if (ended.aborted) return null
      const problem = sentenceOf(thrown, record.name)
      const failures = record.failures + 1
      const wait = Math.max(WAITS[Math.min(failures, WAITS.length) - 1] ?? DAY, retryAfterOf(thrown))
      await save({ failures, nextTryAt: clock.now() + wait, problem })
      logger.warn({ names, directory, problem, next_try_in_seconds: wait / SECOND }, 'no certificate')
      return null
    }
  }
}

function isFor(chain: string, names: readonly string[]): boolean {
  const parsed = new X509Certificate(chain)
  return names.every((name) => parsed.checkHost(name) !== undefined)
}

/** At a random minute behind two thirds of its life. */
function renewalOf(parsed: X509Certificate): number {
  const [from, to] = [parsed.validFromDate.getTime(), parsed.validToDate.getTime()]
  return Math.floor(from + (to - from) * RENEWED_AFTER) + randomInt(SPREAD_SECONDS) * SECOND
}

async function standIn({ crypto }: AcmeLibrary, name: string): Promise<KeyPair> {
  const authorization = { identifier: { type: 'dns', value: name } } as never
  const [key, cert] = await crypto.createAlpnCertificate(authorization, name)
  return { cert, key }
}

const FIXES: Readonly<Record<string, (name: string) => string>> = {
  rateLimited: () => 'Nothing to do: it is asked again when it allows it',
  caa: (name) => `Fix: let the CAA record of ${name} name this authority`,
  dns: (name) => `Fix: add an A or AAAA record for ${name} that leads here`,
  connection: (name) => `Fix: ${name} must lead to this server, and its port 80 be open to everybody`,
  unauthorized: (name) => `Fix: ${name} must lead to this server, and its port 80 here`,
  rejectedIdentifier: () => 'Fix: use another name, or another authority',
}

function sentenceOf(thrown: unknown, name: string): string {
  if (!(thrown instanceof AcmeRefusal)) return `the authority did not answer: ${errorText(thrown)}`
  const fix = FIXES[thrown.type]?.(thrown instanceof NameRefusal ? thrown.domain : name)
  const detail = thrown.message.replace(/[.\s]+$/, '')
  return fix === undefined ? detail : `${detail}. ${fix}`
}

function retryAfterOf(thrown: unknown): number {
  return thrown instanceof AcmeRefusal ? (thrown.retryAfter ?? 0) : 0
}
