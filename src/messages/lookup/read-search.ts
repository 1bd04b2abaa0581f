/**
 * The parameters of `GET /email` -> what the store is asked (http/README.md "Lookup"). Addresses and IPs are brought
 * into the form they are stored in. Throws ServiceError `invalid_request` with every problem.
 */
import type { MessageQuery } from '../../api/message.ts'
import { SECOND } from '../../base/clock.ts'
import { identifierToBytes } from '../../base/identifier.ts'
import { canonicalIp } from '../../base/ip-address.ts'
import { MESSAGE_STATES, type MessageState } from '../../mail/message.ts'
import type { SearchMessagesRequest } from '../../store/records/lookup-records.ts'
import { readAddress as readMailbox } from '../accept/check-shared-fields.ts'
import { createFieldProblems, refuseProblems, shown, type FieldProblems } from '../accept/field-problems.ts'

export function readSearch(query: MessageQuery): Omit<SearchMessagesRequest, 'reach' | 'now'> {
  const problems = createFieldProblems([])
  const { isp, since, until, limit, after } = query
  const search = {
    recipient: readAddress('recipient', query.recipient, problems),
    from: readAddress('from', query.from, problems),
    state: readState(query.state, problems),
    batchId: readBatchId(query.batchId, problems),
    subject: readSubject(query.subject, problems),
    tag: readTag(query.tag, problems),
    ip: readIp(query.ip, problems),
    since: since === null ? null : since * SECOND,
    until: until === null ? null : (until + 1) * SECOND - 1,
    isp,
    limit,
    after,
  }
  refuseProblems(problems)
  return search
}

function readAddress(path: string, text: string | null, problems: FieldProblems): string | null {
  if (text === null) return null
  return readMailbox(path, text, { allowReservedNames: true }, problems)?.mailbox.address ?? null
}

function readState(text: string | null, problems: FieldProblems): MessageState | null {
  if (text === null) return null
  const state = MESSAGE_STATES.find((each) => each === text)
  if (state === undefined) problems.add('state', `'${shown(text)}' is no state; known are ${MESSAGE_STATES.join(', ')}`)
  return state ?? null
}

function readBatchId(text: string | null, problems: FieldProblems): string | null {
  if (text !== null && identifierToBytes('bat', text) === undefined) problems.add('batch_id', 'is no batch id')
  return text
}

function readSubject(text: string | null, problems: FieldProblems): string | null {
  if (text === null || /[\p{L}\p{N}]/u.test(text)) return text
  problems.add('subject', 'needs a word, with letters or digits')
  return null
}

/** The key ends at the first colon. */
function readTag(text: string | null, problems: FieldProblems): SearchMessagesRequest['tag'] {
  if (text === null) return null
  const colon = text.indexOf(':')
  if (colon > 0) return { key: text.slice(0, colon), value: text.slice(colon + 1) }
  problems.add('tag', 'must be key:value')
  return null
}

function readIp(text: string | null, problems: FieldProblems): string | null {
  const ip = text === null ? null : canonicalIp(text)
  if (ip === undefined) problems.add('ip', 'is no IP address')
  return ip ?? null
}
