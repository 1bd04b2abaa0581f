/**
 * Certificates by themselves: which names need one, when each is ordered and renewed (certificates/README.md). `run`
 * never rejects for what an authority does: that is noted at the name, in words, and tried again later.
 */
import { X509Certificate } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { HOUR, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { Logger } from '../base/logger.ts'
import { createRateLimit } from '../base/rate-limit.ts'
import type { KeyPair } from '../base/service/server-certificates.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { CertificateRecord, IssuedRecord } from '../store/records/certificate-records.ts'
import type { Store } from '../store/store.ts'
import { loadAcme, type Acme } from './acme-client.ts'
import { createOrdering } from './order-certificate.ts'
import { createOpenProofs } from './open-proofs.ts'
import { certificateSealedAs, type ChallengeType } from './place-order.ts'
import { createRenewalTimes } from './renewal-time.ts'

interface CertificatesOptions {
  store: Pick<Store, 'acmeAccount' | 'saveAcmeAccount' | 'certificates' | 'saveCertificate' | 'removeCertificate'>
  keyRing: KeyRing
  /** Of the real world: certificates end by it. */
  clock: Clock
  logger: Logger
  settings: NonNullable<ServerSettings['tls']['acme']>
  /** At least one. */
  proofs: readonly ChallengeType[]
  /** Of this server: what one certificate each is for, in the order in which they are needed. */
  own: readonly string[][]
  /** Milliseconds until what one node has saved is shown by all; 0: there is one node. */
  shownByAllAfter: number
  links: LinkNames
  /** There is another one to serve. */
  onIssued(name: string): Promise<void>
}

/** Names of tracked links, each with a certificate of its own. */
interface LinkNames {
  /** A sending domain has it. */
  isUsed(name: string): Promise<boolean>
  /** Mails of the last days that have links there, by name; one that is left out had none. */
  mails(names: readonly string[]): Promise<ReadonlyMap<string, number>>
}

export type Certificates = ReturnType<typeof createCertificates>

/** Of the orders of an hour, so many may come at once. */
const BURST_SHARE = 1 / 4

export function createCertificates(options: CertificatesOptions) {
  const { store, keyRing, clock, settings, shownByAllAfter, onIssued } = options
  const ending = new AbortController()
  const { signal: ended } = ending
  let running: Promise<void> | undefined
  let orderedName: string | null = null
  const load = createLoad(settings)
  const held = createHeldPairs(options, load)
  const proofs = createOpenProofs(async () => (await load()).library)
  const shown = async (): Promise<void> => {
    if (shownByAllAfter > 0) await sleep(shownByAllAfter, undefined, { signal: ended })
  }
  const order = createOrdering({
    ...options,
    ended,
    show: (placed) => proofs.show([placed]),
    parts: async () => ({ store, keyRing, shown, clock, ended, email: settings.email, ...(await load()) }),
  })
  const renewals = createRenewalTimes(clock, async () => (await load()).ask)
  const pace = createRateLimit({
    clock,
    count: settings.orders_per_hour,
    perMilliseconds: HOUR,
    burst: Math.ceil(settings.orders_per_hour * BURST_SHARE),
  })

  async function isDue(record: CertificateRecord): Promise<boolean> {
    if (record.nextTryAt > clock.now()) return false
    if (!isIssued(record) || !held.has(record.name) || !isFor(record.issued.chain, record.names)) return true
    if (record.issued.renewAt <= clock.now()) return true
    if (isOfAnother(record, settings)) return renewFrom(record, clock.now(), options)
    const renewAt = await renewals.suggested(record, settings.directory)
    return renewAt !== null && (await renewFrom(record, renewAt, options))
  }

  /** One after the other: an authority counts how many come at once. */
  async function orderAll(): Promise<void> {
    for (const record of await wantedRecords(options)) {
      if (ended.aborted) return
      if (!(await isDue(record))) continue
      if (pace.take('') > 0) return
      orderedName = record.name
      const current = await asItIs(record, store)
      const issued = await order(current).finally(() => (orderedName = null))
      if (issued === null) continue
      held.use(issued)
      await onIssued(record.name)
    }
  }

  return {
    /** Of the store: for doors that are about to open, and what another node ordered. True: there is another to serve. */
    async read(): Promise<boolean> {
      const records = await store.certificates()
      await proofs.show(records.map(({ order }) => order))
      return records.map(held.use).includes(true)
    },
    pairs: held.all,
    /** The next run orders one for this name of tracked links. Why there is none yet; null: nothing went wrong. */
    async want(name: string): Promise<string | null> {
      const record = (await store.certificates()).find((each) => each.name === name)
      if (record === undefined) await store.saveCertificate(newRecord([name]))
      return record?.problem ?? null
    },
    /** All that are wanted, those of the server first. */
    list: () => wantedRecords(options),
    /**
     * The next run renews it, also before its time and before another try was due. False: there is no such name, or its
     * order is under way. `withNewKey`: also where `keep_key` would have the same.
     */
    renew: async (name: string, withNewKey: boolean): Promise<boolean> =>
      orderedName !== name && makeDue(options, { name, withNewKey }, load),
    /** What our doors answer to an authority. */
    challenges: proofs.challenges,
    /** Orders what is missing, or has to be renewed. Whoever comes while it runs waits for the same run. */
    run: (): Promise<void> => (running ??= orderAll().finally(() => (running = undefined))),
    stop: (): void => ending.abort(),
  }
}

/** Once, unless it failed. */
function createLoad({ directory, fallback, ca_file: caFile }: CertificatesOptions['settings']): () => Promise<Acme> {
  let loading: Promise<Acme> | undefined
  return () =>
    (loading ??= loadAcme([directory, ...fallback], caFile).catch((thrown: unknown) => {
      loading = undefined
      throw thrown
    }))
}

/** What was issued, with its key, by name. */
function createHeldPairs({ keyRing, logger, own }: CertificatesOptions, load: () => Promise<Acme>) {
  const pairs = new Map<string, KeyPair>()
  /** Also of those whose key does not open: that is told once. */
  const chains = new Map<string, string>()
  return {
    /** True: it is another one than before. */
    use({ name, issued }: CertificateRecord): boolean {
      if (issued === null || chains.get(name) === issued.chain) return false
      chains.set(name, issued.chain)
      try {
        pairs.set(name, { cert: issued.chain, key: keyRing.open(issued.sealedKey, certificateSealedAs(name)) })
        return true
      } catch (thrown) {
        logger.warn({ name, error: errorText(thrown) }, 'the key of a certificate does not open: another is ordered')
        return false
      }
    },
    has: (name: string): boolean => pairs.has(name),
    /** For the doors; until the first one comes, one that nobody trusts. */
    async all(): Promise<readonly KeyPair[]> {
      const first = own.flatMap(([name = '']) => pairs.get(name) ?? [])
      const all = new Set([...first, ...pairs.values()])
      return first.length > 0 ? [...all] : [await standIn((await load()).library, own[0]?.[0] ?? ''), ...all]
    },
  }
}

interface AskedRenewal {
  name: string
  withNewKey: boolean
}

/** False: there is no such name. */
async function makeDue(
  options: CertificatesOptions,
  { name, withNewKey }: AskedRenewal,
  load: () => Promise<Acme>,
): Promise<boolean> {
  const { store, keyRing, settings } = options
  const record = (await wantedRecords(options)).find((each) => each.name === name)
  if (record === undefined) return false
  let { order } = record
  if (withNewKey) {
    const key = await (await load()).library.crypto.createPrivateEcdsaKey('P-256')
    const sealedKey = keyRing.seal(key.toString(), certificateSealedAs(name))
    order = { directory: settings.directory, url: null, sealedKey, proof: null }
  }
  const issued = record.issued === null ? null : { ...record.issued, renewAt: 0 }
  await store.saveCertificate({ ...record, issued, order, nextTryAt: 0 })
  return true
}

/** Our own first, then those of links: the fewest failures first, of these the one with the most mail. */
async function wantedRecords({ store, own, links, clock }: CertificatesOptions): Promise<CertificateRecord[]> {
  const known = new Map((await store.certificates()).map((record) => [record.name, record]))
  const ofServer = own.map((names) => recordOf(names, known.get(names[0] ?? '')))
  for (const { name } of ofServer) known.delete(name)
  const ofLinks: CertificateRecord[] = []
  for (const record of known.values()) {
    if (await links.isUsed(record.name)) ofLinks.push(record)
    else if (!isIssued(record) || endOf(record) <= clock.now()) await store.removeCertificate(record.name)
  }
  const mails = await links.mails(ofLinks.filter((record) => !isIssued(record)).map(({ name }) => name))
  const mailsOf = ({ name }: CertificateRecord): number => mails.get(name) ?? 0
  ofLinks.sort((left, right) => left.failures - right.failures || mailsOf(right) - mailsOf(left))
  return [...ofServer, ...ofLinks]
}

function recordOf(names: readonly string[], known: CertificateRecord | undefined): CertificateRecord {
  if (known === undefined) return newRecord(names)
  return known.names.join() === names.join() ? known : { ...known, names: [...names], order: null, nextTryAt: 0 }
}

/** True: it is due. */
async function renewFrom(
  record: IssuedRecord,
  renewAt: number,
  { store, clock }: Pick<CertificatesOptions, 'store' | 'clock'>,
): Promise<boolean> {
  const current = await asItIs(record, store)
  if (!isIssued(current) || current.issued.renewAt !== record.issued.renewAt) return true
  await store.saveCertificate({ ...current, issued: { ...current.issued, renewAt } })
  return renewAt <= clock.now()
}

/** A renewal may have been asked for since the names were listed: the orders before it take minutes. */
async function asItIs(
  { name, names }: CertificateRecord,
  store: Pick<Store, 'certificates'>,
): Promise<CertificateRecord> {
  const known = await store.certificates()
  return recordOf(
    names,
    known.find((each) => each.name === name),
  )
}

function newRecord(names: readonly string[]): CertificateRecord {
  const [name = ''] = names
  return { name, names: [...names], issued: null, order: null, failures: 0, nextTryAt: 0, problem: null }
}

function isIssued(record: CertificateRecord): record is IssuedRecord {
  return record.issued !== null
}

/** Of an authority that is not asked any more, such as one that somebody tried first. */
function isOfAnother({ issued }: IssuedRecord, { directory, fallback }: CertificatesOptions['settings']): boolean {
  return issued.directory !== null && ![directory, ...fallback].includes(issued.directory)
}

function endOf({ issued }: IssuedRecord): number {
  return new X509Certificate(issued.chain).validToDate.getTime()
}

function isFor(chain: string, names: readonly string[]): boolean {
  const parsed = new X509Certificate(chain)
  return names.every((name) => parsed.checkHost(name) !== undefined)
}

async function standIn({ crypto }: Acme['library'], name: string): Promise<KeyPair> {
  const authorization = { identifier: { type: 'dns', value: name } } as never
  const [key, cert] = await crypto.createAlpnCertificate(authorization, name)
  return { cert, key }
}
