/**
 * The bytes for an endpoint that asked for more than the standard fields (`include`, http/README.md "Webhooks"): read
 * where the event is recorded, in its transaction, behind everything that the verb wrote. Fields that an event does not
 * have are left out; what is no event of a message has none.
 */
import type { Database } from 'better-sqlite3'
import { eventBody, type ServiceEvent } from '../../../mail/event.ts'
import type { IncludedField } from '../../records/webhook-records.ts'

interface ExtrasRow {
  tags: string | null
  metadata: string | null
  ip: string | null
  reply: string | null
  category: string | null
  late: number | null
  description: string | null
}

interface EventOfMessage extends ServiceEvent {
  messageKey: number | null
}

/** Kinds that tell what a server answered. */
const ANSWERED = ['email.delivered', 'email.bounced', 'email.deferred']

/** null: the standard bytes. */
export function createBodyWithExtras(
  database: Database,
): (event: EventOfMessage, include: readonly IncludedField[]) => string | null {
  const find = database.prepare<[number], ExtrasRow>(`
    select
      contents.tags, contents.metadata, bounces.category, bounces.late, bounces.description,
      (select ip from attempts where message_seq = messages.seq order by at desc limit 1) as ip,
      (select reply from attempts where message_seq = messages.seq order by at desc limit 1) as reply
    from messages
    cross join contents on contents.content_id = messages.content_id
    left join bounces on bounces.message_seq = messages.seq
    where messages.seq = ?`)
  return (event, include) => {
    const row = event.messageKey === null ? undefined : find.get(event.messageKey)
    if (row === undefined) return null
    const extras = extrasOf(event, row).filter(([name, value]) => value !== null && include.includes(name))
    if (extras.length === 0) return null
    return eventBody({ ...event, data: { ...event.data, ...Object.fromEntries(extras) } })
  }
}

function extrasOf({ kind }: EventOfMessage, row: ExtrasRow): [IncludedField, object | string | null][] {
  const isAnswer = ANSWERED.includes(kind)
  const isBounce = kind === 'email.bounced'
  // What a report brought later is the answer then, and not what was said to the attempt.
  const answer = isBounce && row.late === 1 ? row.description : row.reply
  return [
    ['tags', objectOf(row.tags)],
    ['metadata', objectOf(row.metadata)],
    ['ip', isAnswer || kind === 'email.complained' ? row.ip : null],
    ['smtp_response', isAnswer ? answer : null],
    ['category', isBounce ? row.category : null],
  ]
}

function objectOf(json: string | null): object {
  return json === null ? {} : (JSON.parse(json) as object)
}
