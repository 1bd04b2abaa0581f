/** What the links of one message are found again by: its values, and which content they go into. */
import type { Database } from 'better-sqlite3'
import type { LinkSource } from '../../records/engagement-records.ts'
import { createFindTrackingHost } from '../domains/domain-rows.ts'
import { variablesFrom } from '../messages/message-views.ts'
import { storedIdentifier } from '../engine/stored-identifier.ts'

interface SourceRow {
  contentId: number
  hasVariables: number
  variables: string | null
  unsubscribeList: string | null
  unsubscribeUrl: string | null
  domain: string
}

export function createLinkSource(database: Database): (messageId: string) => LinkSource | null {
  const find = database.prepare<[Buffer], SourceRow>(`
    select
      contents.content_id as contentId, contents.has_variables as hasVariables, message_data.variables,
      contents.unsubscribe_list as unsubscribeList, contents.unsubscribe_url as unsubscribeUrl, lanes.domain
    from messages
    cross join contents on contents.content_id = messages.content_id
    cross join lanes on lanes.lane_id = messages.lane_id
    left join message_data on message_data.message_seq = messages.seq
    where messages.id = ?`)
  // Of a removed message.
  const findTrace = database.prepare<[Buffer], SourceRow>(`
    select
      contents.content_id as contentId, contents.has_variables as hasVariables, traces.variables,
      contents.unsubscribe_list as unsubscribeList, contents.unsubscribe_url as unsubscribeUrl, lanes.domain
    from traces
    cross join contents on contents.content_id = traces.content_id
    cross join lanes on lanes.lane_id = traces.lane_id
    where traces.id = ?`)
  const findTrackingHost = createFindTrackingHost(database)
  return (messageId) => {
    const id = storedIdentifier('msg', messageId)
    const row = find.get(id) ?? findTrace.get(id)
    if (row === undefined) return null
    const { contentId, unsubscribeList: list, unsubscribeUrl: url, domain } = row
    return {
      contentId,
      hasVariables: row.hasVariables === 1,
      variables: variablesFrom(row.variables),
      unsubscribe: list === null ? null : { list, url },
      trackingHost: findTrackingHost(domain),
    }
  }
}
