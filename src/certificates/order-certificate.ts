/**
 * One try to get a certificate: at which authority, by which proof, and what is noted of it at the name. Resolves to null
 * when there is none yet: why, in words, and when it is tried again, is saved then. Rejects when the store does.
 */
import { DAY, HOUR, MINUTE, SECOND, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { CertificateRecord, IssuedRecord } from '../store/records/certificate-records.ts'
import type { Store } from '../store/store.ts'
import { AcmeRefusal } from './acme-client.ts'
import { certificateSealedAs, NameRefusal, placeOrder, type ChallengeType, type OrderParts } from './place-order.ts'
import { certificateIdOf, plannedRenewal } from './renewal-time.ts'

interface OrderingOptions {
  store: Pick<Store, 'saveCertificate'>
  clock: Clock
  logger: Logger
  settings: NonNullable<ServerSettings['tls']['acme']>
  /** What our doors can prove a name by, at least one; after a failure it is the turn of the next. */
  proofs: readonly ChallengeType[]
  parts(): Promise<OrderParts>
}

/** After so many failures at one authority it is the turn of the next. */
const TRIES_EACH = 3
/** Before the second, third, ... try. The last one repeats. */
const WAITS = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, DAY]

export function createOrdering({ store, clock, logger, settings, proofs, parts }: OrderingOptions) {
  const directories = [settings.directory, ...settings.fallback]
  return async (record: CertificateRecord): Promise<IssuedRecord | null> => {
    const { names, failures, issued: before } = record
    const directory = directories[Math.floor(failures / TRIES_EACH) % directories.length] ?? settings.directory
    const proof = proofs[failures % proofs.length] ?? 'http-01'
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
          proof,
          replaces: before === null ? null : certificateIdOf(before.chain),
          order: record.order?.directory === directory ? record.order : null,
          saveOrder: (placed) => save({ order: placed }),
        },
      )
      const sealedKey = others.keyRing.seal(key, certificateSealedAs(record.name))
      const issued = { chain, sealedKey, renewAt: plannedRenewal(parsed) }
      await save({ issued, order: null, failures: 0, nextTryAt: 0, problem: null })
      logger.info({ names, directory, ends_at: parsed.validToDate.toISOString() }, 'certificate issued')
      return { ...current, issued }
    } catch (thrown) {
      if (ended.aborted) return null
      const problem = sentenceOf(thrown, record.name, proof)
      const wait = Math.max(WAITS[Math.min(failures, WAITS.length - 1)] ?? DAY, retryAfterOf(thrown))
      await save({ failures: failures + 1, nextTryAt: clock.now() + wait, problem })
      logger.warn({ names, directory, problem, next_try_in_seconds: wait / SECOND }, 'no certificate')
      return null
    }
  }
}

/** Where an authority asks for each proof (RFC 8555 §8.3, RFC 8737 §3). */
const PORTS: Record<ChallengeType, number> = { 'http-01': 80, 'tls-alpn-01': 443 }

const FIXES: Readonly<Record<string, (name: string, port: number) => string>> = {
  rateLimited: () => 'Nothing to do: it is asked again when it allows it',
  caa: (name) => `Fix: let the CAA record of ${name} name this authority`,
  dns: (name) => `Fix: add an A or AAAA record for ${name} that leads here`,
  connection: (name, port) => `Fix: ${name} must lead to this server, and its port ${port} be open to everybody`,
  unauthorized: (name, port) => `Fix: ${name} must lead to this server, and its port ${port} here`,
  rejectedIdentifier: () => 'Fix: use another name, or another authority',
}

function sentenceOf(thrown: unknown, name: string, proof: ChallengeType): string {
  if (!(thrown instanceof AcmeRefusal)) return `the authority did not answer: ${errorText(thrown)}`
  const fix = FIXES[thrown.type]?.(thrown instanceof NameRefusal ? thrown.domain : name, PORTS[proof])
  const detail = thrown.message.replace(/[.\s]+$/, '')
  return fix === undefined ? detail : `${detail}. ${fix}`
}

function retryAfterOf(thrown: unknown): number {
  return thrown instanceof AcmeRefusal ? (thrown.retryAfter ?? 0) : 0
}
