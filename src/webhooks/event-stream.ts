/**
 * Events as a stream, for a developer who follows along (commands/README.md "sternpost listen"): server-sent events in
 * the format of the HTML standard (9.2), with the identifier of the event as `id`, its kind as `event` and the exact
 * body as `data`.
 *
 * A follower gets what happens from now on, or after an event it names, back to an hour ago; replays and tests come as
 * they are made, to those who listen then. It counts for nothing: no delivery depends on it. One that reads slowly is
 * waited for. Each stream asks every few seconds whether it is still allowed, and before it tells anything. `open`
 * throws ServiceError: `invalid_request` for a kind or a Last-Event-ID that is none, `rate_limited` for a stream too
 * many.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { HOUR, SECOND, type Clock } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { identifierToBytes } from '../base/identifier.ts'
import { GIVEN_EVENT_KINDS, isSubscribed } from '../mail/event.ts'
import { reaches, type Reach } from '../mail/reach.ts'
import type { Store } from '../store/store.ts'
import type { ReplayedEvent } from '../store/records/webhook-records.ts'
import { eventProblems, refuse } from './endpoint-rules.ts'

interface OpenStreamRequest {
  /** null: the five given kinds. */
  events: string[] | null
  /** Those of one message; null: of all. */
  messageId: string | null
  lastEventId: string | null
  /** Events within it. */
  reach: Reach
  /** null: a person, or the administrator. */
  apiKeyId: string | null
  /** Asked again and again: false ends the stream. */
  isAllowed(): Promise<boolean>
}

/** The text of the stream, until it is told to end. */
type EventText = (ended: AbortSignal) => AsyncIterable<string>

export interface EventStreams {
  /** The stream counts from now until it has ended: it must be started. */
  open(request: OpenStreamRequest): Promise<EventText>
  /** New events may be there. */
  wake(): void
  /** Events that are no new ones. */
  tell(events: readonly ReplayedEvent[]): void
}

/** Pages of the console, and whoever follows from a terminal. */
const MOST_STREAMS = 50
/** So that no key takes all of them from the others. */
const MOST_STREAMS_OF_KEY = 20
const RESUMED_AT_MOST = HOUR
const HEARTBEAT_MILLISECONDS = 5 * SECOND
const HEARTBEAT = ':\n\n'
const READ_AT_ONCE = 500
/** What happens within it is told together, and read once for all who follow. */
const PAUSE_MILLISECONDS = 100
const PAGES_KEPT = 4
/** Told again while a follower was busy reading; the oldest go first. */
const MOST_TOLD_AGAIN = 1_000

interface Follower {
  kinds: readonly string[]
  /** A part of the body; empty: whatever it is. */
  part: string
  reach: Reach
  apiKeyId: string | null
  toldAgain: ReplayedEvent[]
  /** Something happened since it last looked. */
  hasNews: boolean
  onNews: () => void
}

interface EventStreamsOptions {
  store: Store
  clock: Clock
  /** Also how long a revoked key may keep an idle stream; nothing is told to it. Left out: 5 s. */
  heartbeatMilliseconds?: number
}

export function createEventStreams(options: EventStreamsOptions): EventStreams {
  const { store, clock, heartbeatMilliseconds = HEARTBEAT_MILLISECONDS } = options
  const followers = new Set<Follower>()
  const shared = createSharedReader(store)
  const wake = (): void => {
    shared.renew()
    followers.forEach(wakeFollower)
  }

  return {
    wake,
    tell(events) {
      for (const follower of followers) {
        const wanted = events.filter((event) => isWanted(event, follower))
        follower.toldAgain = [...follower.toldAgain, ...wanted].slice(-MOST_TOLD_AGAIN)
        wakeFollower(follower)
      }
    },
    async open({ events, messageId, lastEventId, reach, apiKeyId, isAllowed }) {
      refuse(eventProblems(events))
      if (messageId !== null && identifierToBytes('msg', messageId) === undefined)
        refuse(['message_id: is no message id'])
      const position = await store.eventPosition(lastEventId, clock.now() - RESUMED_AT_MOST)
      if (position === undefined) refuse(['Last-Event-ID: not the id of an event'])
      refuseTooMany(followers, apiKeyId)
      const kinds = events ?? GIVEN_EVENT_KINDS
      const part = messageId === null ? '' : JSON.stringify(messageId)
      const follower: Follower = { kinds, part, reach, apiKeyId, toldAgain: [], hasNews: false, onNews: () => {} }
      followers.add(follower)
      return (ended) => {
        const leave = (): void => {
          followers.delete(follower)
          wakeFollower(follower)
        }
        // A signal that was given already is not given again.
        if (ended.aborted) leave()
        ended.addEventListener('abort', leave, { once: true })
        return follow({
          eventsAfter: shared.read,
          follower,
          position: position ?? 0,
          heartbeatMilliseconds,
          isAllowed,
          ended,
        })
      }
    },
  }
}

function refuseTooMany(followers: ReadonlySet<Follower>, apiKeyId: string | null): void {
  if (followers.size >= MOST_STREAMS) throw new ServiceError('rate_limited', `${MOST_STREAMS} streams are open`)
  if (apiKeyId === null) return
  let ofKey = 0
  for (const follower of followers) ofKey += Number(follower.apiKeyId === apiKeyId)
  if (ofKey < MOST_STREAMS_OF_KEY) return
  throw new ServiceError('rate_limited', `${MOST_STREAMS_OF_KEY} streams of this key are open`)
}

interface Following {
  eventsAfter: ReadEvents
  follower: Follower
  /** Of the last event that was read. */
  position: number
  heartbeatMilliseconds: number
  isAllowed(): Promise<boolean>
  ended: AbortSignal
}

async function* follow(following: Following): AsyncGenerator<string> {
  const { eventsAfter, follower, heartbeatMilliseconds, isAllowed, ended } = following
  let { position } = following
  let askedAt = -Infinity
  // The head of the answer goes out with the first bytes.
  yield HEARTBEAT
  while (!ended.aborted) {
    follower.hasNews = false
    const found = await eventsAfter(position)
    position = found.at(-1)?.position ?? position
    const told = [...found.filter((event) => isWanted(event, follower)), ...follower.toldAgain.splice(0)]
    if (told.length > 0 || performance.now() - askedAt >= heartbeatMilliseconds) {
      if (!(await isAllowed())) return
      askedAt = performance.now()
    }
    if (told.length > 0) yield told.map(eventText).join('')
    if (found.length > 0 || told.length > 0) {
      if (found.length < READ_AT_ONCE) await sleep(PAUSE_MILLISECONDS)
    } else if (!(await nextNews(follower, heartbeatMilliseconds))) yield HEARTBEAT
  }
}

type ReadEvents = (position: number) => ReturnType<Store['eventsAfter']>

/** Followers ask from the same places, and events behind a place stay what they are: each page is read once. */
function createSharedReader(store: Pick<Store, 'eventsAfter'>) {
  const pages = new Map<number, ReturnType<Store['eventsAfter']>>()
  const known = new WeakSet<object>()
  return {
    async read(position: number) {
      const page = pages.get(position) ?? store.eventsAfter(position, READ_AT_ONCE)
      pages.set(position, page)
      for (const place of [...pages.keys()].slice(0, -PAGES_KEPT)) pages.delete(place)
      let count = 0
      try {
        const found = await page
        count = found.length
        return found
      } finally {
        if (count === 0 && pages.get(position) === page) pages.delete(position)
        else known.add(page)
      }
    },
    /** What is still being read may have missed what has just happened. */
    renew(): void {
      for (const [position, page] of pages) if (!known.has(page)) pages.delete(position)
    },
  }
}

function wakeFollower(follower: Follower): void {
  follower.hasNews = true
  follower.onNews()
}

/** True when there may be news, false when there were none for a while. */
function nextNews(follower: Follower, waitMilliseconds: number): Promise<boolean> {
  return new Promise((resolve) => {
    if (follower.hasNews) return resolve(true)
    const timer = setTimeout(() => resolve(false), waitMilliseconds)
    follower.onNews = () => {
      clearTimeout(timer)
      resolve(true)
    }
  })
}

function isWanted({ kind, body, owner }: ReplayedEvent, { kinds, part, reach }: Follower): boolean {
  return body.includes(part) && body !== '' && isSubscribed(kinds, kind) && reaches(reach, owner) && !isOfMachine(body)
}

/** As the store writes it last into `data`. Whoever follows sees what endpoints get that include nothing. */
function isOfMachine(body: string): boolean {
  return body.endsWith('"machine":"true"}}')
}

/** A body is one line: JSON escapes line breaks. */
function eventText({ eventId, kind, body }: ReplayedEvent): string {
  return `id: ${eventId}\nevent: ${kind}\ndata: ${body}\n\n`
}
