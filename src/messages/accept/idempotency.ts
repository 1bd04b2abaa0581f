/**
 * Repeated requests (http/README.md "Idempotency"). What is under way is known in memory: one process answers for a
 * database. Throws ServiceError `conflict`, with Retry-After while the first request runs.
 */
import type { Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { IdempotencyEntry, KeptAnswer } from '../../store/records/accept-records.ts'
import type { Store } from '../../store/store.ts'

export type IdempotencyKeys = ReturnType<typeof createIdempotencyKeys>

interface IdempotencyOptions {
  store: Pick<Store, 'findIdempotent' | 'keepAnswer'>
  clock: Clock
}

export function createIdempotencyKeys({ store, clock }: IdempotencyOptions) {
  const underWay = new Map<string, Uint8Array>()

  return {
    /** `new`: it is under way from now on, until `end`. */
    async begin(entry: IdempotencyEntry) {
      const name = nameOf(entry)
      const running = underWay.get(name)
      if (running !== undefined) throw Buffer.compare(running, entry.fingerprint) === 0 ? stillRunning() : mismatch()
      underWay.set(name, entry.fingerprint)
      try {
        const found = await store.findIdempotent(entry, clock.now())
        if (found.kind === 'mismatch') throw mismatch()
        if (found.kind === 'replayed') underWay.delete(name)
        return found
      } catch (thrown) {
        underWay.delete(name)
        throw thrown
      }
    },
    /** The request was answered, in whatever way. */
    end: (entry: IdempotencyEntry) => void underWay.delete(nameOf(entry)),
    /** For requests that store no message. */
    keepAnswer: (entry: IdempotencyEntry, answer: KeptAnswer) => store.keepAnswer(entry, answer, clock.now()),
  }
}

/** The key was used before, for another request. */
export function mismatch(): ServiceError {
  return new ServiceError('conflict', 'this idempotency key was used for another request within the last 24 hours')
}

function stillRunning(): ServiceError {
  return new ServiceError('conflict', 'the first request with this idempotency key is still under way', {
    headers: { 'Retry-After': '1' },
  })
}

/** The identifier of a key has no space. */
function nameOf({ apiKeyId, key }: IdempotencyEntry): string {
  return `${apiKeyId ?? ''} ${key}`
}
