/** What is known of one message when it is rendered, beside its content. */
import type { Database } from '../../engine/database.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import type { RenderFacts, Stream } from '../../../mail/message.ts'
import { variablesFrom } from './message-views.ts'

export interface FactsRow {
  id: Buffer
  domain: string
  stream: Stream
  recipient: string
  toName: string | null
  variables: string | null
  acceptedAt: number
  sendAt: number | null
}

/** Of a message by its key; FactsRow. */
export const FACTS_QUERY = `
  select
    messages.id, lanes.domain, lanes.stream, messages.recipient, message_data.to_name as toName,
    message_data.variables, messages.created_at as acceptedAt, contents.send_at as sendAt
  from messages
  cross join lanes on lanes.lane_id = messages.lane_id
  cross join contents on contents.content_id = messages.content_id
  left join message_data on message_data.message_seq = messages.seq
  where messages.seq = +?`

/** By the key of the message. */
export function createFactsReader(database: Database): (key: number) => RenderFacts | undefined {
  const findFacts = database.prepare<[number], FactsRow>(FACTS_QUERY)
  return (key) => {
    const row = findFacts.get(key)
    return row === undefined ? undefined : factsOf(row)
  }
}

export const factsOf = (row: FactsRow): RenderFacts => ({
  messageId: identifierFromBytes('msg', row.id),
  domain: row.domain,
  to: { name: row.toName, address: row.recipient },
  variables: variablesFrom(row.variables),
  acceptedAt: row.acceptedAt,
  sendAt: row.sendAt,
  stream: row.stream,
})
