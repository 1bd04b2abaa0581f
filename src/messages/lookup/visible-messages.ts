/**
 * Messages and batches as far as the one who asks reaches them: an id that nobody has, one that is none at all and one
 * of another sending domain or mode give the same answer, ServiceError `not_found` (http/README.md "What a key
 * reaches").
 */
import { ServiceError } from '../../base/errors.ts'
import { identifierToBytes } from '../../base/identifier.ts'
import { namedMessageId } from '../../mail/message-token.ts'
import { ownerOf, reaches, type Reach } from '../../mail/reach.ts'
import type { BatchView, MessageView } from '../../store/records/lookup-records.ts'
import type { Store } from '../../store/store.ts'

/** Enough to show any real id whole. */
const MOST_SHOWN_CHARACTERS = 64

/** `named`: by its id, or by what stands in the header of the mail, such as its Message-ID. */
export async function requireMessage(
  store: Pick<Store, 'lookupMessage'>,
  named: string,
  reach: Reach,
  now: number,
): Promise<MessageView> {
  const id = namedMessageId(named) ?? named
  const isIdentifier = identifierToBytes('msg', id) !== undefined
  const message = isIdentifier ? await store.lookupMessage(id, now) : null
  if (message === null || !reaches(reach, ownerOf(message))) throw notFound('message', id)
  return message
}

export async function requireBatch(
  store: Pick<Store, 'lookupBatch'>,
  id: string,
  reach: Reach,
  now: number,
): Promise<BatchView> {
  const isIdentifier = identifierToBytes('bat', id) !== undefined
  const batch = isIdentifier ? await store.lookupBatch(id, now) : null
  if (batch === null || !reaches(reach, ownerOf(batch))) throw notFound('batch', id)
  return batch
}

export function notFound(what: 'message' | 'batch', id: string): ServiceError {
  return new ServiceError('not_found', `${what} ${id.slice(0, MOST_SHOWN_CHARACTERS)}`)
}
