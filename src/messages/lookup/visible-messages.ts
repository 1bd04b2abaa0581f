/**
 * Messages and batches as far as the one who asks may see them: an id that nobody has, one that is none at all and one
 * of another sending domain give the same answer, ServiceError `not_found` (http/README.md "Lookup").
 */
import { ServiceError } from '../../base/errors.ts'
import { identifierToBytes } from '../../base/identifier.ts'
import type { BatchView, MessageView } from '../../store/records/lookup-records.ts'
import type { Store } from '../../store/store.ts'

/** Who asks. */
export interface Viewer {
  /** Sending domains it may see; empty: all. */
  domains: readonly string[]
}

/** Enough to show any real id whole. */
const MOST_SHOWN_CHARACTERS = 64

export async function requireMessage(
  store: Pick<Store, 'lookupMessage'>,
  id: string,
  viewer: Viewer,
  now: number,
): Promise<MessageView> {
  const isIdentifier = identifierToBytes('msg', id) !== undefined
  const message = isIdentifier ? await store.lookupMessage(id, now) : null
  if (message === null || !maySee(viewer, message)) throw notFound('message', id)
  return message
}

export async function requireBatch(
  store: Pick<Store, 'lookupBatch'>,
  id: string,
  viewer: Viewer,
  now: number,
): Promise<BatchView> {
  const isIdentifier = identifierToBytes('bat', id) !== undefined
  const batch = isIdentifier ? await store.lookupBatch(id, now) : null
  if (batch === null || !maySee(viewer, batch)) throw notFound('batch', id)
  return batch
}

export function notFound(what: 'message' | 'batch', id: string): ServiceError {
  return new ServiceError('not_found', `${what} ${id.slice(0, MOST_SHOWN_CHARACTERS)}`)
}

/** As in acceptance: the domain that signs, or the one of `from` below it. */
function maySee({ domains }: Viewer, { from, domain }: { from: string; domain: string }): boolean {
  return domains.length === 0 || domains.includes(domain) || domains.includes(from.slice(from.lastIndexOf('@') + 1))
}
