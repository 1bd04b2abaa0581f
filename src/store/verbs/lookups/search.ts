/**
 * Searching messages, newest first. The condition that leaves the fewest rows leads; the others are asked of each row,
 * and of so many at most (`pages.ts`). Times have no index: the numbers that can lie within them are found by
 * bisection, since rows are numbered in the order of their acceptance.
 */
import type { Database } from '../../engine/database.ts'
import { HOUR } from '../../../base/clock.ts'
import { getNamed } from '../tools/stored-identifier.ts'
import type { SearchMessagesRequest } from '../../records/lookup-records.ts'
import { bisect, createWalk, MOST_ROWS_READ, positionAfter, type RunWalk, type WalkParameters } from '../tools/pages.ts'
import { askAhead, foundOfEach, lengthOf, oneColumn } from '../tools/statements.ts'
import { comparableAddress, createFindSpellings } from '../tools/stored-address.ts'
import { messageQuery, viewOf, type MessageRow } from '../messages/message-views.ts'
import type { Verb } from '../tools/verb-types.ts'
import { subjectMatch } from './subjects.ts'

/** So far back may the clock have been set without a message being missed by a search for a time. */
const CLOCK_SLACK = HOUR
const COLUMNS = `
  messages.seq, messages.state, messages.attempts, messages.path_failures, messages.content_id, messages.lane_id,
  messages.isp, messages.created_at`
// The plus, here as elsewhere, keeps SQLite from planning anew for each value of a parameter.
const IN_RANGE = 'messages.seq > +@floor and messages.seq < +@before'
const SOURCES = {
  recipient: `select ${COLUMNS} from messages where recipient = +@recipient and ${IN_RANGE} order by seq desc`,
  batch: `select ${COLUMNS} from messages where content_id = +@batchContent and ${IN_RANGE} order by seq desc`,
  tag: `
    select ${COLUMNS}
    from content_tags
    cross join messages on messages.content_id = content_tags.content_id
    where content_tags.key = +@tagKey and content_tags.value = +@tagValue and ${IN_RANGE}
      and content_tags.content_id between +@firstContent and +@lastContent
    order by content_tags.content_id desc, messages.seq desc`,
  from: `
    select ${COLUMNS}
    from contents
    cross join messages on messages.content_id = contents.content_id
    where contents.from_address = +@from and ${IN_RANGE}
      and contents.content_id between +@firstContent and +@lastContent
    order by contents.content_id desc, messages.seq desc`,
  none: `select ${COLUMNS} from messages where ${IN_RANGE} order by seq desc`,
}

/** As `stateOf` in message-views.ts. */
const STATE = `
  case
    when walked.state = 'waiting' and (walked.attempts > 0 or walked.path_failures > 0) then 'deferred'
    when walked.state = 'waiting' then
      iif((select send_at from contents where content_id = walked.content_id) > +@now, 'scheduled', 'queued')
    when walked.state = 'bounced' and
      (select category from bounces where message_seq = walked.seq) = 'expired' then 'expired'
    else walked.state
  end`

/** What is not asked for is null. The recipient is missing: where it is asked for, it leads. */
const CONDITION_BUT_SUBJECT = `
  (@batchContent is null or walked.content_id = +@batchContent)
  and (@tagKey is null or exists (
    select 1 from content_tags where key = +@tagKey and value = +@tagValue and content_id = walked.content_id))
  and (@from is null or +@from = (select from_address from contents where content_id = walked.content_id))
  and (@since is null or walked.created_at >= +@since)
  and (@until is null or walked.created_at <= +@until)
  and (@isp is null or walked.isp = +@isp)
  and (@isTest is null or +@isTest = (select is_test from contents where content_id = walked.content_id))
  and (@domains is null
    or walked.lane_id in (select lane_id from lanes where domain in (select value from json_each(@domains)))
    or (select substr(from_address, instr(from_address, '@') + 1) from contents where content_id = walked.content_id)
      in (select value from json_each(@domains)))
  and (@state is null or @state = ${STATE})
  and (@ip is null or +@ip = (
    select ip from attempts where message_seq = walked.seq and ip is not null order by at desc limit 1))`
const CONDITION = `
  ${CONDITION_BUT_SUBJECT}
  and (@subject is null or exists (
    select 1 from subjects where subjects match +@subject and rowid = walked.content_id))`

export function createSearchMessages(database: Database): Verb<'searchMessages'> {
  const walks = Object.fromEntries(
    Object.entries(SOURCES).map(([lead, source]) => [lead, createWalk<number>(database, 'seq', source, CONDITION)]),
  ) as Record<keyof typeof SOURCES, ReturnType<typeof createWalk<number>>>
  const walkSpellings = createSpellingWalk(database, walks.recipient)
  const walkSubjects = createSubjectWalk(database)
  const findBatch = database.prepare<[Buffer], number>('select content_id from batches where id = ?').pluck()
  const findRange = createRangeFinder(database)
  const findMessage = database.prepare<[number], MessageRow>(messageQuery('messages.seq = +?'))

  return (request) => {
    const { state, isp, ip, since, until, now, reach } = request
    const range = findRange(request)
    const batchContent = request.batchId === null ? null : getNamed(findBatch, 'bat', request.batchId)
    if (range === undefined || batchContent === undefined) return { messages: [], next: null }
    const asked = { state, isp, ip, since, until, now, batchContent }
    const parameters = {
      ...range,
      ...asked,
      recipient: request.recipient,
      from: request.from === null ? null : comparableAddress(request.from),
      subject: request.subject === null ? null : subjectMatch(request.subject),
      tagKey: request.tag?.key ?? null,
      tagValue: request.tag?.value ?? null,
      isTest: reach.isTest === null ? null : Number(reach.isTest),
      domains: reach.domains.length === 0 ? null : JSON.stringify(reach.domains),
    }
    const lead = leadOf(request)
    const walk = { ...walks, recipient: walkSpellings, subject: walkSubjects }[lead]
    const { found, next } = walk(parameters, request.limit)
    const messages = found.flatMap((seq) => findMessage.get(seq) ?? []).map((row) => viewOf(row, now))
    return { messages, next: next === null ? null : String(next) }
  }
}

function leadOf({ recipient, batchId, tag, subject, from }: SearchMessagesRequest): keyof typeof SOURCES | 'subject' {
  if (recipient !== null) return 'recipient'
  if (batchId !== null) return 'batch'
  if (tag !== null) return 'tag'
  if (subject !== null) return 'subject'
  return from === null ? 'none' : 'from'
}

/** The messages to an address in all its spellings, as one list: no further down than every spelling was looked at. */
function createSpellingWalk(database: Database, walk: RunWalk<number>): RunWalk<number> {
  const findSpellings = createFindSpellings(database, 'messages', 'recipient')
  return (parameters, limit) => {
    const pages = findSpellings(String(parameters['recipient'])).map((recipient) =>
      walk({ ...parameters, recipient }, limit),
    )
    const end = Math.max(0, ...pages.map(({ next }) => next ?? 0))
    const seen = pages.flatMap((page) => page.found.filter((seq) => seq >= end)).toSorted((a, b) => b - a)
    const found = seen.slice(0, limit)
    return { found, next: (seen.length > limit ? found.at(-1) : end) || null }
  }
}

/** That are read at once. */
const CONTENTS_AT_ONCE = 100

/**
 * The messages of the contents whose subject has the words, newest first. Content by content: the index of words knows
 * no order of messages, and sorting all that have a common word would take seconds.
 */
function createSubjectWalk(database: Database): RunWalk<number> {
  const contentsOf = createSubjectContents(database)
  const findRows = database.prepare<[WalkParameters], { seq: number; isMeant: number }>(`
    select seq, ${CONDITION_BUT_SUBJECT} as isMeant from (${SOURCES.batch} limit +@most) as walked`)
  return (parameters, limit) => {
    const found: number[] = []
    let most = MOST_ROWS_READ
    const ask = (batchContent: number, mostRows: number) =>
      askAhead(findRows, { ...parameters, batchContent, most: mostRows })
    for (const contents of contentsOf(parameters)) {
      const each = foundOfEach(contents, ask, lengthOf, () => most)
      for (const [, rows] of each) {
        for (const { seq, isMeant } of rows) {
          if (isMeant !== 1) continue
          if (found.length === limit) return { found, next: found.at(-1) ?? null }
          found.push(seq)
        }
        most -= 1 + rows.length
        const last = rows.at(-1)
        if (most <= 0 && last !== undefined) return { found, next: last.seq }
      }
    }
    return { found, next: null }
  }
}

/** Contents whose subject has the words, newest first, some at a time: a common word is in a million of them. */
function createSubjectContents(database: Database): (parameters: WalkParameters) => Generator<number[]> {
  const find = oneColumn(database)<[WalkParameters], number>(`
    select rowid from subjects
    where subjects match @subject and rowid between @firstContent and @lastContent
    order by rowid desc
    limit +@most`)
  return function* contentsOf(parameters) {
    let lastContent = parameters['lastContent'] ?? null
    for (;;) {
      const contents = find.all({ ...parameters, lastContent, most: CONTENTS_AT_ONCE })
      if (contents.length > 0) yield contents
      const last = contents[CONTENTS_AT_ONCE - 1]
      if (last === undefined) return
      lastContent = last - 1
    }
  }
}

/** Where the rows of a search can lie: between the two numbers, both excluded; contents both included. */
interface SearchRange {
  floor: number
  before: number
  firstContent: number
  lastContent: number
}

/** Undefined when no row can be meant. */
function createRangeFinder(database: Database): (request: SearchMessagesRequest) => SearchRange | undefined {
  const findLast = database.prepare<[number], { seq: number; contentId: number }>(`
    select seq, content_id as contentId from messages where seq < ? order by seq desc limit 1`)
  const findNext = database.prepare<[number], { seq: number; contentId: number; createdAt: number }>(`
    select seq, content_id as contentId, created_at as createdAt from messages where seq >= ? order by seq limit 1`)
  /** The first of the rows from which on all were accepted after this time, as far as the clock ran forward. */
  const firstAfter = (time: number, end: number): number => bisect(end, findNext, ({ createdAt }) => createdAt > time)
  return ({ since, until, after }) => {
    const newest = findLast.get(positionAfter(after))
    if (newest === undefined) return undefined
    const end = newest.seq + 1
    const before = until === null ? end : Math.min(firstAfter(until + CLOCK_SLACK, end), end)
    const floor = since === null ? 0 : firstAfter(since - CLOCK_SLACK - 1, end) - 1
    const first = findNext.get(floor + 1)
    const last = findLast.get(before)
    if (first === undefined || last === undefined) return undefined
    return { floor, before, firstContent: first.contentId, lastContent: last.contentId }
  }
}
