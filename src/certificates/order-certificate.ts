/**
 * One try to get a certificate: at which authority, by which proof, and what is noted of it at the name. Resolves to null
 * when there is none yet: why, in words, and when it is tried again, is saved then. Rejects when the store does.
 */
import { DAY, HOUR, MINUTE, SECOND, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { AcmeOrder, CertificateRecord, IssuedRecord } from '../store/records/certificate-records.ts'
import type { Store } from '../store/store.ts'
import { AcmeRefusal } from './acme-client.ts'
import {
  certificateSealedAs,
  NameRefusal,
  NOT_YET_VALID,
  placeOrder,
  type ChallengeType,
  type OrderParts,
} from './place-order.ts'
import { certificateIdOf, plannedRenewal } from './renewal-time.ts'

interface OrderingOptions {
  store: Pick<Store, 'saveCertificate'>
  clock: Clock
  logger: Logger
  settings: NonNullable<ServerSettings['tls']['acme']>
  /** What our doors can prove a name by, at least one; after a failure it is the turn of the next. */
  proofs: readonly ChallengeType[]
  /** Then nothing is noted any more. */
  ended: AbortSignal
  /** What our doors answer from now on to its authority. */
  show(order: AcmeOrder | null): Promise<void>
  parts(): Promise<OrderParts>
}

/** After so many failures at one authority it is the turn of the next. */
const TRIES_EACH = 3
/** Before the second, third, ... try. The last one repeats. */
const WAITS = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, DAY]
/** The longest limit of an authority we know of. Who says more is not believed. */
const LONGEST_RETRY_AFTER = 7 * DAY

export function createOrdering({ store, clock, logger, settings, proofs, ended, show, parts }: OrderingOptions) {
  const turns = createTurns([settings.directory, ...settings.fallback], clock)
  return async (record: CertificateRecord): Promise<IssuedRecord | null> => {
    const { name, names, failures, issued: before } = record
    const directory = turns.next(record)
    const proof = proofs[failures % proofs.length] ?? 'http-01'
    let current = record
    const save = async (change: Partial<CertificateRecord>): Promise<void> => {
      current = { ...current, ...change }
      await store.saveCertificate(current)
      await show(current.order)
    }
    try {
      const others = await parts()
      const { chain, key, parsed } = await placeOrder(others, {
        directory,
        names,
        proof,
        replaces: before === null ? null : certificateIdOf(before.chain),
        order: record.order?.directory === directory ? record.order : null,
        sealedKey: settings.keep_key ? (before?.sealedKey ?? null) : null,
        saveOrder: (placed) => save({ order: placed }),
      })
      const sealedKey = others.keyRing.seal(key, certificateSealedAs(name))
      const issued = { chain, sealedKey, renewAt: plannedRenewal(parsed, clock.now()), directory }
      await save({ issued, order: null, failures: 0, nextTryAt: 0, problem: null })
      logger.info({ names, directory, ends_at: parsed.validToDate.toISOString() }, 'certificate issued')
      return { ...current, issued }
    } catch (thrown) {
      if (ended.aborted) return null
      const problem = sentenceOf(thrown, name, proof)
      const usual = WAITS[Math.min(failures, WAITS.length - 1)] ?? DAY
      const wait = Math.max(usual, turns.refused({ name, failures: failures + 1 }, directory, retryAfterOf(thrown)))
      // An order that no try comes to an end with would stand in the way for ever.
      const isGivenUp = (failures + 1) % TRIES_EACH === 0
      const order = isGivenUp || current.order === null ? null : { ...current.order, proof: null }
      await save({ order, failures: failures + 1, nextTryAt: clock.now() + wait, problem })
      logger.warn({ names, directory, problem, next_try_in_seconds: wait / SECOND }, 'no certificate')
      return null
    }
  }
}

type Tried = Pick<CertificateRecord, 'name' | 'failures'>

/** Which authority is asked for a name: the next one after some failures, and none before it allows it. */
function createTurns(directories: readonly [string, ...string[]], clock: Pick<Clock, 'now'>) {
  const closedUntil = new Map<string, number>()
  const waitAt = (directory: string, name: string): number =>
    Math.max(0, (closedUntil.get(`${directory} ${name}`) ?? 0) - clock.now())
  /** Its turn first, then those behind it. */
  const inTurn = ({ failures }: Tried): string[] => {
    const turn = Math.floor(failures / TRIES_EACH) % directories.length
    return [...directories.slice(turn), ...directories.slice(0, turn)]
  }
  return {
    next(tried: Tried): string {
      const ofTurn = inTurn(tried)
      return ofTurn.find((directory) => waitAt(directory, tried.name) === 0) ?? ofTurn[0] ?? directories[0]
    },
    /** Milliseconds until one of them may be asked. */
    refused(tried: Tried, directory: string, retryAfter: number): number {
      closedUntil.set(`${directory} ${tried.name}`, clock.now() + Math.min(LONGEST_RETRY_AFTER, retryAfter))
      return Math.min(...directories.map((each) => waitAt(each, tried.name)))
    },
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
  badPublicKey: (name) => `Fix: sternpost certificate renew ${name} --new-key`,
  [NOT_YET_VALID]: () => 'Fix: set the clock of this machine',
  rejectedIdentifier: () => 'Fix: use another name, or another authority',
}

/** Of what an authority says; it is stored, logged and shown. */
const MOST_CHARACTERS = 500

function sentenceOf(thrown: unknown, name: string, proof: ChallengeType): string {
  const detail = errorText(thrown)
    .slice(0, MOST_CHARACTERS)
    .replace(/[\p{Cc}\u2028\u2029]+/gu, ' ')
    .replace(/[.\s]+$/, '')
  if (thrown instanceof TypeError || thrown instanceof SyntaxError) {
    return `the authority's answer cannot be read: ${detail}`
  }
  if (!(thrown instanceof AcmeRefusal)) return `the authority did not answer: ${detail}`
  const fixOf = Object.hasOwn(FIXES, thrown.type) ? FIXES[thrown.type] : undefined
  const fix = fixOf?.(thrown instanceof NameRefusal ? thrown.domain : name, PORTS[proof])
  return fix === undefined ? detail : `${detail}. ${fix}`
}

function retryAfterOf(thrown: unknown): number {
  return thrown instanceof AcmeRefusal ? (thrown.retryAfter ?? 0) : 0
}
