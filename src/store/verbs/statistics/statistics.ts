/**
 * Sums of events by hour, domain, tag, pool, mailbox provider and IP. A slice of events is read in their order and added in
 * the transaction that notes the last one: so each counts once, and what the sums say equals the events. An event of a
 * message that is not there any more counts for nothing; the job comes long before that.
 */
import type { Database } from '../../engine/database.ts'
import { HOUR } from '../../../base/clock.ts'
import {
  STATISTICS_COUNTERS,
  type StatisticsCounter,
  type StatisticsDimension,
  type StatisticsPlace,
} from '../../records/statistics-records.ts'
import { StatisticsSums } from '../../statistics-sums.ts'
import { ask, oneColumn } from '../tools/statements.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'
import { additionsOf, columnOf, valuesOf } from '../ips/ip-counters.ts'

/** Tags with a name of their own, of one domain in one hour; the rest, and what may be an address, is OTHER_TAGS. */
const MOST_TAGS = 1_000
const OTHER_TAGS = '*'
/** Rows of one part: some milliseconds. */
const WALKED_AT_ONCE = 2_000

interface EventRow {
  message: number
  hour: number
  kind: string
  isMachine: number
  /** Of an attempt; empty: it had none yet. */
  ip: string | null
}

/** What is known of a message: read once for all its events. */
interface MessageRow {
  seq: number
  isTest: number
  domain: string
  pool: string
  provider: string
  /** JSON object, null: none. */
  tags: string | null
  /** Of the last attempt before the slice; empty: it had none yet; null: there was no attempt. */
  ip: string | null
}

/** An event of a message. */
interface Happened extends MessageRow, Pick<EventRow, 'hour' | 'kind' | 'isMachine'> {}

const COUNTER_OF: Readonly<Record<string, StatisticsCounter>> = {
  'email.accepted': 'accepted',
  'email.delivered': 'delivered',
  'email.deferred': 'deferred',
  'email.bounced': 'bounced',
  'email.complained': 'complained',
  'email.opened': 'opened',
  'email.clicked': 'clicked',
  'email.suppressed': 'suppressed',
  'email.canceled': 'canceled',
  'email.unsubscribed': 'unsubscribed',
}
const ATTEMPT = 'email.attempted'
/** Provider and IP are known then: the mail counts as accepted for them. */
const FIRST_ATTEMPT = 'first attempt'
const COLUMNS = STATISTICS_COUNTERS.map(columnOf)

export function createStatisticsWrites(database: Database) {
  const findSummed = oneColumn(database)<[], number>(`select value from meta where name = 'summed_event'`)
  const noteSummed = database.prepare<[number]>(`
    insert into meta (name, value) values ('summed_event', ?) on conflict (name) do update set value = excluded.value`)
  const findLast = database.prepare<[number, number], { last: number | null; events: number }>(`
    select max(event_seq) as last, count(*) as events
    from (select event_seq from events where event_seq > +? order by event_seq limit +?) as walked`)
  const findNewest = oneColumn(database)<[], number | null>('select max(event_seq) from events')
  const findEvents = database.prepare<[object], EventRow>(EVENTS)
  const findMessages = database.prepare<[object], MessageRow>(MESSAGES)
  const writeSums = createSumsWriter(database)
  const forget = database.prepare<[number, number]>(`
    delete from statistics
    where (is_test, dimension, hour, name, domain) in (
      select is_test, dimension, hour, name, domain from statistics where hour < ? limit +?)`)
  return {
    sumStatistics(limit) {
      const summed = findSummed.get() ?? 0
      const { last = null, events: count = 0 } = findLast.get(summed, limit) ?? {}
      if (last === null) {
        // The newest events are gone, and their numbers will be given again.
        const newest = findNewest.get() ?? 0
        if (newest < summed) noteSummed.run(newest)
        return false
      }
      const slice = { summed, last }
      const [events, messages] = [ask(findEvents, slice), ask(findMessages, slice)]
      writeSums(sumsOf(happenedIn(events(), messages())))
      noteSummed.run(last)
      return count >= limit
    },
    forgetStatistics: (before, limit) => forget.run(before, limit).changes,
  } satisfies SomeVerbs
}

const EVENTS = `
  select
    message_seq as message,
    at / ${HOUR} * ${HOUR} as hour,
    kind,
    kind in ('email.opened', 'email.clicked')
      and coalesce(json_extract(body, '$.data.machine'), '') = 'true' as isMachine,
    case kind when '${ATTEMPT}' then coalesce(json_extract(body, '$.data.ip'), '') end as ip
  from events
  where event_seq > +@summed and event_seq <= +@last
  order by event_seq`

/** The road of events to their messages, and what is known of those. */
const MESSAGES = `
  select
    messages.seq,
    contents.is_test as isTest,
    lanes.domain,
    coalesce(accepted_for.name, pools.name) as pool,
    coalesce(messages.isp, '') as provider,
    contents.tags,
    (select coalesce(json_extract(attempt.body, '$.data.ip'), '') from events as attempt
      where attempt.message_seq = messages.seq and attempt.kind = '${ATTEMPT}' and attempt.event_seq <= +@summed
      order by attempt.event_seq desc limit 1) as ip
  from messages
  cross join contents on contents.content_id = messages.content_id
  cross join lanes on lanes.lane_id = messages.lane_id
  cross join pools on pools.pool_id = messages.pool_id
  left join message_data on message_data.message_seq = messages.seq
  left join pools as accepted_for on accepted_for.pool_id = message_data.pool_id
  where messages.seq in (select message_seq from events where event_seq > +@summed and event_seq <= +@last)`

/** Each with the IP of its last attempt; of attempts the first ones. */
function* happenedIn(events: readonly EventRow[], messages: readonly MessageRow[]): Generator<Happened> {
  const known = new Map(messages.map((message) => [message.seq, message]))
  for (const { message: seq, hour, kind, isMachine, ip } of events) {
    const message = known.get(seq)
    if (message === undefined) continue
    const isFirst = kind === ATTEMPT && message.ip === null
    if (kind === ATTEMPT) message.ip = ip
    if (kind !== ATTEMPT || isFirst) yield { ...message, hour, kind: isFirst ? FIRST_ATTEMPT : kind, isMachine }
  }
}

/** Of one hour, one name, one domain. */
interface Sums extends Pick<Happened, 'hour' | 'isTest' | 'domain'> {
  dimension: StatisticsDimension
  name: string
  counts: Partial<Record<StatisticsCounter, number>>
}

function sumsOf(rows: Iterable<Happened>): Iterable<Sums> {
  const sums = new Map<string, Sums>()
  for (const { row, count } of alike(rows)) {
    const counter = row.kind === FIRST_ATTEMPT ? 'accepted' : counterOf(row.kind, row.isMachine === 1)
    if (counter === undefined) continue
    for (const [dimension, name] of placesOf(row)) {
      const { hour, isTest, domain } = row
      const key = JSON.stringify([hour, isTest, domain, dimension, name])
      const sum = sums.get(key) ?? { hour, isTest, domain, dimension, name, counts: {} }
      sum.counts[counter] = (sum.counts[counter] ?? 0) + count
      sums.set(key, sum)
    }
  }
  return sums.values()
}

/** Each once that counts in the same places, with how many there are: few of many thousands. */
function alike(rows: Iterable<Happened>): Iterable<{ row: Happened; count: number }> {
  const counts = new Map<string, { row: Happened; count: number }>()
  for (const row of rows) {
    const { hour, kind, isMachine, isTest, domain, pool, provider, ip, tags } = row
    const key = `${hour}\n${kind}\n${isMachine}\n${isTest}\n${domain}\n${pool}\n${provider}\n${ip}\n${tags}`
    const known = counts.get(key)
    if (known === undefined) counts.set(key, { row, count: 1 })
    else known.count += 1
  }
  return counts.values()
}

/** Where an event counts. Provider and IP are known from the first attempt on. */
function placesOf({ kind, domain, pool, provider, ip, tags }: Happened): [StatisticsDimension, string][] {
  const places: [StatisticsDimension, string][] = []
  if (kind !== 'email.accepted' && provider !== '') places.push(['provider', provider])
  if (kind !== 'email.accepted' && ip !== null && ip !== '') places.push(['ip', ip])
  if (kind === FIRST_ATTEMPT) return places
  return [...places, ['domain', domain], ['pool', pool], ...tagsOf(tags).map((tag): ['tag', string] => ['tag', tag])]
}

function createSumsWriter(database: Database): (all: Iterable<Sums>) => void {
  const add = database.prepare<(string | number)[]>(`
    insert into statistics (is_test, dimension, hour, name, domain, ${COLUMNS.join(', ')})
    values (?, ?, ?, ?, ?, ${COLUMNS.map(() => '?').join(', ')})
    on conflict (is_test, dimension, hour, name, domain) do update set ${additionsOf('statistics', COLUMNS)}`)
  const tagName = createTagNames(database)
  return (all) => {
    for (const { hour, isTest, domain, dimension, name, counts } of all) {
      const written = dimension === 'tag' ? tagName({ isTest, hour, domain, tag: name }) : name
      add.run(isTest, dimension, hour, written, domain, ...valuesOf(counts, STATISTICS_COUNTERS))
    }
  }
}

function counterOf(kind: string, isMachine: boolean): StatisticsCounter | undefined {
  const counter = COUNTER_OF[kind]
  if (!isMachine) return counter
  return counter === 'opened' ? 'machineOpened' : 'machineClicked'
}

/** `key:value`, as a search names them. */
function tagsOf(tags: string | null): string[] {
  if (tags === null) return []
  return Object.entries(JSON.parse(tags) as Record<string, string>).map(([key, value]) => `${key}:${value}`)
}

interface TagPlace {
  isTest: number
  hour: number
  domain: string
  tag: string
}

/** The tag itself, or the name of all others once the hour has too many: whoever puts ids into tags fills no disk. */
function createTagNames(database: Database): (place: TagPlace) => string {
  const isKnown = oneColumn(database)<[number, number, string, string], number>(`
    select 1 from statistics where is_test = ? and dimension = 'tag' and hour = ? and name = ? and domain = ?`)
  const count = oneColumn(database)<[number, number, string], number>(`
    select count(*) from statistics where is_test = ? and dimension = 'tag' and hour = ? and domain = ?`)
  return ({ isTest, hour, domain, tag }) => {
    if (tag.includes('@')) return OTHER_TAGS
    if (isKnown.get(isTest, hour, tag, domain) !== undefined) return tag
    return (count.get(isTest, hour, domain) ?? 0) < MOST_TAGS ? tag : OTHER_TAGS
  }
}

export function createStatisticsReads(database: Database) {
  const columns = COLUMNS.map((column, index) => `${column} as ${STATISTICS_COUNTERS[index]}`).join(', ')
  const walk = database.prepare<[object], StatisticsPlace & Record<StatisticsCounter, number>>(`
    select hour, name, domain, ${columns}
    from statistics
    where is_test = +@isTest and dimension = +@dimension and hour < +@before
      and (hour, name, domain) > (+@hour, +@name, +@domain)
    order by hour, name, domain
    limit ${WALKED_AT_ONCE}`)
  return {
    statistics({ isTest, dimension, isNamed, step, past, before, domains }) {
      const sums = new StatisticsSums()
      const walked = walk.all({ isTest: Number(isTest), dimension, before, ...past })
      for (const { hour, name, domain, ...counts } of walked) {
        if (domains.length > 0 && !domains.includes(domain)) continue
        sums.add({ name: isNamed ? name : '', at: hour - (hour % step), ...counts })
      }
      const last = walked.length < WALKED_AT_ONCE ? undefined : walked.at(-1)
      const next = last === undefined ? null : { hour: last.hour, name: last.name, domain: last.domain }
      return { rows: sums.rows(), next }
    },
  } satisfies SomeVerbs
}
