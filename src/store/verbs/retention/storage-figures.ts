/**
 * What the database is full of, by kind: estimated from some hundred rows of all ages, in a few milliseconds whatever
 * the size. The kinds together are what is in use; `other` is what samples do not explain.
 */
import type { Database, Statement } from '../../engine/database.ts'
import { DAY } from '../../../base/clock.ts'
import type { KindBytes } from '../../records/retention-records.ts'
import { PIECES_PER_CONTENT } from '../messages/stored-content.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'

/** Samples are taken at so many places of a table, so many rows at each. */
const PLACES = 10
const ROWS_AT_A_PLACE = 20
/** Pages are not full, and rows stand in indexes too: bytes on the disk for each byte of a row. */
const OVERHEAD = 1.4
const ROW_BYTES = 90
const DAYS_OF_GROWTH = 7

type SampledKind = Exclude<KindBytes['kind'], 'other'>

interface Span {
  first: number | null
  last: number | null
}

interface Place {
  rows: number
  /** How far the rows reach. */
  last: number | null
  bytes: number
}

export function createStorageFigures(database: Database, sizeOf: Verb<'databaseSize'>): Verb<'storageFigures'> {
  const sample = createSamples(database)
  const growth = createGrowth(database)
  return () => {
    const size = sizeOf()
    const found = sample().map(({ kind, bytes }) => ({ kind, bytes: bytes * OVERHEAD }))
    const sum = found.reduce((total, { bytes }) => total + bytes, 0)
    const scale = sum > size.usedBytes ? size.usedBytes / sum : 1
    const kinds: KindBytes[] = found.map(({ kind, bytes }) => ({ kind, bytes: Math.round(bytes * scale) }))
    const known = kinds.reduce((total, { bytes }) => total + bytes, 0)
    kinds.push({ kind: 'other', bytes: Math.max(0, size.usedBytes - known) })
    return { ...size, kinds, growthPerDay: growth() }
  }
}

function createSamples(database: Database): () => { kind: SampledKind; bytes: number }[] {
  const spanOf = (table: string, key: string): (() => Span) => {
    const findFirst = database.prepare<[], number | null>(`select min(${key}) from ${table}`).pluck()
    const findLast = database.prepare<[], number | null>(`select max(${key}) from ${table}`).pluck()
    return () => ({ first: findFirst.get() ?? null, last: findLast.get() ?? null })
  }
  const ofMessages = spanOf('messages', 'seq')
  const bySeq = (bytes: string): Statement<[number, number], Place> =>
    database.prepare(`
    select count(*) as "rows", max(seq) as last, coalesce(sum(bytes), 0) as bytes
    from (select seq, ${bytes} as bytes from messages where seq >= ? order by seq limit +?) as walked`)
  const about = (table: string, bytes: string): string =>
    `coalesce((select sum(${bytes} + ${ROW_BYTES}) from ${table} where ${table}.message_seq = messages.seq), 0)`
  const perMessage: Record<Exclude<SampledKind, 'content' | 'links'>, Statement<[number, number], Place>> = {
    messages: bySeq(
      `2 * ${ROW_BYTES} + length(recipient) + ${about('message_data', `length(coalesce(variables, ''))`)}`,
    ),
    attempts: bySeq(about('attempts', `length(reply) + length(coalesce(tls_facts, ''))`)),
    transcripts: bySeq(about('transcripts', 'length(dialogue)')),
    events: bySeq(about('events', `length(coalesce(body, ''))`)),
    webhook_deliveries: bySeq(`coalesce((
      select sum(length(coalesce(webhook_deliveries.body, '')) + 2 * ${ROW_BYTES})
      from events
      cross join webhook_deliveries on webhook_deliveries.event_seq = events.event_seq
      where events.message_seq = messages.seq), 0)`),
  }
  const ofParts = spanOf('content_parts', 'part_key')
  const parts = database.prepare<[number, number], Place>(`
    select count(*) as "rows", max(part_key) as last, coalesce(sum(length(bytes) + ${ROW_BYTES}), 0) as bytes
    from (select part_key, bytes from content_parts where part_key >= ? order by part_key limit +?) as walked`)
  const ofTraces = spanOf('traces', 'trace_seq')
  const traces = database.prepare<[number, number], Place>(`
    select count(*) as "rows", max(trace_seq) as last, coalesce(sum(bytes), 0) as bytes
    from (
      select
        trace_seq, 3 * ${ROW_BYTES} + length(coalesce(variables, '')) + coalesce(length(links), 0) as bytes
      from traces
      left join kept_links on kept_links.content_id = traces.content_id
      where trace_seq >= ?
      order by trace_seq
      limit +?
    ) as walked`)

  return () => {
    const messages = ofMessages()
    const kinds: { kind: SampledKind; bytes: number }[] = [
      { kind: 'content', bytes: estimate(ofParts(), parts, PIECES_PER_CONTENT) },
      { kind: 'links', bytes: estimate(ofTraces(), traces) },
    ]
    for (const kind of ['messages', 'attempts', 'transcripts', 'events', 'webhook_deliveries'] as const) {
      kinds.push({ kind, bytes: estimate(messages, perMessage[kind]) })
    }
    return kinds
  }
}

/** Bytes of a table whose keys go from `first` to `last`: what was found at the places, for the whole stretch. */
function estimate({ first, last }: Span, find: Statement<[number, number], Place>, step = 1): number {
  if (first === null || last === null) return 0
  let bytes = 0
  let reach = 0
  for (let place = 0; place < PLACES; place += 1) {
    const from = Math.floor(first + ((last - first) * place) / PLACES)
    const found = find.get(from, ROWS_AT_A_PLACE)
    if (found === undefined || found.last === null) continue
    bytes += found.bytes
    reach += found.last - from + step
  }
  return reach === 0 ? 0 : bytes * Math.max(1, (last - first + step) / reach)
}

export function createSizeWrites(database: Database) {
  const note = database.prepare<[string, number]>(`
    insert into database_days (day, bytes) values (?, ?) on conflict do nothing`)
  const forget = database.prepare<[string]>(`delete from database_days where day < date(?, '-400 days')`)

  return {
    /** Bytes in use at the first look on a day. */
    noteDatabaseSize(day, bytes) {
      if (note.run(day, bytes).changes > 0) forget.run(day)
    },
  } satisfies SomeVerbs
}

function createGrowth(database: Database): () => number | null {
  const find = database.prepare<[number], { day: string; bytes: number }>(`
    select day, bytes from database_days order by day desc limit ?`)
  return () => {
    const days = find.all(DAYS_OF_GROWTH + 1)
    const [newest, oldest] = [days[0], days.at(-1)]
    if (newest === undefined || oldest === undefined || newest.day === oldest.day) return null
    return (newest.bytes - oldest.bytes) / ((Date.parse(newest.day) - Date.parse(oldest.day)) / DAY)
  }
}
