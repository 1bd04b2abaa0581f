/**
 * Recording opens and clicks (http/README.md "Events"): each hit is counted; the first open, and the first click on
 * each link, is an event. What a machine did is counted apart and is only a line of the timeline. A person who clicks
 * has opened the mail, which is recorded where the mail tracks opens. Hits of messages that are not there any more are
 * left out.
 */
import type { Database, Statement } from '../../engine/database.ts'
import { newIdentifier } from '../../../base/identifier.ts'
import { clickedData, openedData, unsubscribedData } from '../../../mail/event.ts'
import type { EngagementHit, EngagementTally } from '../../records/engagement-records.ts'
import { createEventStatistics } from '../ips/ip-statistics.ts'
import { createFindRemoved } from '../messages/removed-message.ts'
import { createEventRecorder, type RecordedEvent, newEvent } from '../events/record-events.ts'
import { ERASED } from '../tools/stored-address.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import { oneColumn } from '../tools/statements.ts'
import { isSimulated } from '../../../mail/simulator.ts'
import { createRecipientSuppression } from '../suppressions/suppressions.ts'
import type { Verb } from '../tools/verb-types.ts'

interface MessageRow {
  seq: number
  recipient: string
  state: string
  finalAt: number | null
  late: number | null
  tracksOpens: number
}

/** A hit that was judged, of a message that is there. */
interface JudgedHit extends EngagementHit {
  message: MessageRow
}

export function createRecordEngagement(database: Database): Verb<'recordEngagement'> {
  const findMessage = database.prepare<[Buffer], MessageRow>(`
    select
      messages.seq, messages.recipient, messages.state, messages.final_at as finalAt, bounces.late,
      contents.tracks_opens as tracksOpens
    from messages
    cross join contents on contents.content_id = messages.content_id
    left join bounces on bounces.message_seq = messages.seq
    where messages.id = ?`)
  const seen = createSightings(database)
  const count = createCounter(database)
  const beginStatistics = createEventStatistics(database)
  const events = createEventRecorder(database)

  return ({ now, hits, machineAfterDelivery }) => {
    const tally: EngagementTally = { opens: 0, clicks: 0, machineOpens: 0, machineClicks: 0 }
    const happened: RecordedEvent[] = []
    const statistics = beginStatistics()
    const record = (hit: JudgedHit): void => {
      const counter = counterOf(hit)
      tally[counter] += 1
      count(hit.message.seq, counter)
      if (!seen.note(hit)) return
      happened.push(eventOf(hit, now))
      if (hit.isMachine) return
      if (hit.link === null) statistics.opened(hit.message.seq, hit.at)
      else statistics.clicked(hit.message.seq, hit.at)
    }
    for (const hit of hits) {
      const message = findMessage.get(storedIdentifier('msg', hit.messageId))
      // Nothing more is learned about whoever was erased.
      if (message === undefined || message.recipient === ERASED) continue
      const isMachine = hit.isMachine || isTooSoon(message, hit.at, machineAfterDelivery)
      const judged: JudgedHit = { ...hit, isMachine, message }
      const tellsOfOpen = hit.link !== null && !isMachine && message.tracksOpens === 1
      if (tellsOfOpen && !seen.hasOpened(message.seq)) record({ ...judged, link: null })
      record(judged)
    }
    statistics.flush(now)
    events.record(happened, now)
    return tally
  }
}

/** Nobody reads a mail before it was delivered, or in the same moment. */
function isTooSoon({ state, finalAt, late }: MessageRow, at: number, machineAfterDelivery: number): boolean {
  if (state === 'sending') return true
  const wasDelivered = state === 'delivered' || late === 1
  return wasDelivered && finalAt !== null && at < finalAt + machineAfterDelivery
}

function createSightings(database: Database) {
  const note = oneColumn(database)<[number, string, number, number, number, string | null, string | null], number>(`
    insert into engagement (message_seq, kind, link, machine, first_at, hits, client_address, user_agent)
    values (?, ?, ?, ?, ?, 1, ?, ?)
    on conflict (message_seq, kind, link, machine) do update set hits = engagement.hits + 1
    returning hits`)
  const findOpen = oneColumn(database)<[number], number>(`
    select 1 from engagement where message_seq = ? and kind = 'open' and link = 0 and machine = 0`)
  return {
    hasOpened: (messageKey: number): boolean => findOpen.get(messageKey) !== undefined,
    /** Whether it is the first of its kind. */
    note({ message, link, isMachine, at, client }: JudgedHit): boolean {
      const kind = link === null ? 'open' : 'click'
      const { address = null, userAgent = null } = client ?? {}
      return note.get(message.seq, kind, link?.number ?? 0, Number(isMachine), at, address, userAgent) === 1
    },
  }
}

type CounterName = keyof EngagementTally

function counterOf({ link, isMachine }: EngagementHit): CounterName {
  if (link === null) return isMachine ? 'machineOpens' : 'opens'
  return isMachine ? 'machineClicks' : 'clicks'
}

function createCounter(database: Database): (messageKey: number, counter: CounterName) => void {
  const prepare = (column: string): Statement<[number]> =>
    database.prepare(`
      insert into engagement_counts (message_seq, ${column}) values (?, 1)
      on conflict (message_seq) do update set ${column} = engagement_counts.${column} + 1`)
  const statements = {
    opens: prepare('opens'),
    clicks: prepare('clicks'),
    machineOpens: prepare('machine_opens'),
    machineClicks: prepare('machine_clicks'),
  }
  return (messageKey, counter) => void statements[counter].run(messageKey)
}

function eventOf({ messageId, link, at, isMachine, message }: JudgedHit, now: number): RecordedEvent {
  const { seq: messageKey, recipient } = message
  const data = link === null ? openedData(messageId, recipient) : clickedData(messageId, recipient, link.url)
  const kind = link === null ? 'email.opened' : 'email.clicked'
  const event = { id: newIdentifier('evt', now), kind, at, messageKey } as const
  return isMachine ? { ...event, data: { ...data, machine: 'true' }, isMachine: true } : { ...event, data }
}

interface ListedMessage {
  /** null: it was removed. */
  seq: number | null
  recipient: string
  recipientDomain: string
  list: string | null
  isTest: number
}

/**
 * A recipient leaves the list of a mail: the address goes onto the suppression list of the mail's mode with the list as
 * its scope, and the event goes out, together (http/README.md "Unsubscribe").
 *
 * The event goes out once for a message, and again when the address had been taken off the suppression list meanwhile.
 * Simulated recipients get it and are never suppressed (http/README.md "Simulated recipients"). Of a removed message
 * its trace is enough: the event then goes out whenever the address comes onto the list.
 */
export function createRecordUnsubscribe(database: Database): Verb<'recordUnsubscribe'> {
  const findMessage = database.prepare<[Buffer], ListedMessage>(`
    select
      messages.seq, messages.recipient, messages.recipient_domain as recipientDomain,
      contents.unsubscribe_list as list, contents.is_test as isTest
    from messages
    cross join contents on contents.content_id = messages.content_id
    where messages.id = ?`)
  const findRemoved = createFindRemoved(database)
  const addReport = database.prepare<[number, number]>(`
    insert into reports (message_seq, kind, at) values (?, 'unsubscribe', ?) on conflict do nothing`)
  const suppress = createRecipientSuppression(database)
  const events = createEventRecorder(database)

  return ({ messageId, now }) => {
    const id = storedIdentifier('msg', messageId)
    const message = findMessage.get(id) ?? findRemoved.get(id)
    if (message === undefined || message.list === null) return { kind: 'unknown' }
    const { seq: messageKey, recipient, recipientDomain, list, isTest } = message
    // Whoever was erased is on the list already, for every mail.
    if (recipient === ERASED) return { kind: 'repeated' }
    const isSuppressed =
      !isSimulated(recipientDomain) && suppress({ id: messageId, recipient, isTest }, 'unsubscribe', list, now)
    const isFirst = messageKey !== null && addReport.run(messageKey, now).changes === 1
    if (!isFirst && !isSuppressed) return { kind: 'repeated' }
    const data = unsubscribedData(messageId, recipient, list)
    events.record([newEvent('email.unsubscribed', data, messageKey, now)], now)
    return { kind: 'unsubscribed' }
  }
}
