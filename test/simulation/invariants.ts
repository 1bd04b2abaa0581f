/**
 * What has to hold of every world, whatever happens in it.
 *
 * | name       | holds                                                                                            |
 * | ---------- | ------------------------------------------------------------------------------------------------ |
 * | lost       | a message whose acceptance was answered is in the store                                          |
 * | duplicate  | no server takes a message twice that is not marked as a possible duplicate                       |
 * | liveness   | when nothing disturbs any more, every message ends in the time that the limits leave for it, or  |
 * |            | waits for a reason that has a name                                                                |
 * | holders    | a row under lease is in somebody's hand, and memory holds no row that the store has not leased   |
 * | orphan     | the net below is never needed                                                                    |
 * | wake       | no walk finds due mail that nobody told of; nothing is overdue                                   |
 * | turns      | a sender's few messages do not wait until another's many have gone                               |
 * | rate       | a path gets no more messages than its rate allows                                                |
 * | connection | an IP has no more connections to a site than it may                                              |
 * | cap        | a warming IP tries no more new messages in a day than its stage allows                           |
 * | event      | every event of a message is posted                                                               |
 */
import { createHash } from 'node:crypto'
import { identifierFromBytes, identifierToBytes } from '../../src/base/identifier.ts'
import type { ToThread } from '../../src/delivery/protocol/try-result.ts'
import type { UnclaimRequest } from '../../src/store/records/claim-records.ts'
import { FIRST_STAGE, IPS, LONGEST_RETRY } from './configuration.ts'
import type { SimulatedProcess } from './process.ts'
import type { Connection, Taken } from './receivers.ts'
import type { SimulatedDisk } from './store.ts'
import {
  isCrowdStory,
  SMALL_CROWD,
  SMALL_SENDER,
  type Happening,
  type Mail,
  type Settings,
  type Story,
} from './story.ts'
import type { VirtualTime } from './virtual-time.ts'
import type { World } from './world.ts'

export class Violation extends Error {
  kind: string
  constructor(kind: string, text: string) {
    super(`${kind}: ${text}`)
    this.kind = kind
  }
}

export interface InvariantsOptions {
  story: Story
  time: VirtualTime
  disk: SimulatedDisk
  fail: (violation: Violation) => void
}

export interface Invariants {
  noteAccepted(ids: readonly string[], mail: Mail): void
  noteRecipient(connection: Connection, messageId: string): void
  noteTaken(taken: Taken, earlier: readonly Taken[]): void
  noteConnection(connection: Connection, count: number): void
  notePosted(eventId: string): void
  notePost(message: ToThread): void
  /** Of the store. */
  noteCall(verb: string, argument: unknown): void
  noteLog(phrase: string, fields: Record<string, unknown>): void
  /** Now and then. */
  look(process: SimulatedProcess | undefined): void
  /** Everything has ended, or waits for a reason that no time of this world ends. */
  isAllOver(process: SimulatedProcess | undefined): boolean
  /** At the end. */
  judge(process: SimulatedProcess | undefined): void
  /** How long mail may take once nothing disturbs any more, in milliseconds. */
  longestWait(world: World): number
  digest(): string
  counts(): { messages: number; delivered: number; givenBack: number }
}

interface Row {
  id: Buffer
  state: string
  next_at: number
  waiting_for: string | null
  lease_epoch: number | null
}

const MINUTE = 60_000
const HOUR = 60 * MINUTE
/** Waits that the world's time may not end. */
const NAMED_WAITS = ['warmup_day', 'warmup_hour', 'provider_share'] as const
/** Longest wait of a path that did not answer for some minutes. */
const PATH_WAIT = 15 * MINUTE
/** An IP whose address was gone is disabled for half an hour, and mail bound to it looks every 15 min if it is back. */
const LOST_IP_WAIT = 45 * MINUTE
/** The third retry of a webhook comes after so long. */
const HOOK_WAITS = 40 * MINUTE
/** Log lines that nothing in a story excuses, and those that are excused by these happenings. */
const ALARMS: Record<string, readonly Happening['what'][]> = {
  "message in nobody's hand": [],
  "webhook delivery in nobody's hand": [],
  'scheduler.missed_wake': ['slow-store', 'disk-full'],
  'messages without a next event': ['slow-store', 'disk-full', 'jump'],
  'leases lapsed without an outcome': ['jump', 'disk-full', 'slow-store'],
}
/** With these, tokens of a rate are given back or counted anew. */
const RATE_CHANGES: readonly Happening['what'][] = [
  'kill',
  'stop',
  'thread-death',
  'jump',
  'reload',
  'suspend-ip',
  'suspend-provider',
  'lose-address',
  'move-hosts',
]

export function createInvariants({ story, time, disk, fail }: InvariantsOptions): Invariants {
  const { settings, items } = story
  const accepted = new Set<string>()
  const posted = new Set<string>()
  const digest = createHash('sha256')
  const tried = new Map<string, Set<string>>()
  const buckets = new Map<string, { arrivalAt: number }>()
  let taken = 0
  const isCrowd = isCrowdStory(story)
  let small = { ids: new Set<string>(), since: 0, lastAt: 0 }
  let givenBack = 0
  const has = (what: Happening['what']): boolean => items.some(({ happening }) => happening.what === what)
  const mostConnections = Math.max(
    settings.connections,
    ...items.map(({ happening }) => (happening.what === 'reload' ? happening.connections : 0)),
  )
  const isRateSteady = !RATE_CHANGES.some(has)
  const mayLapse = has('jump') || has('disk-full') || has('slow-store')
  const mayHaveLaterStage = items.some(({ happening }) => happening.what === 'jump' && happening.milliseconds > 0)

  const { database } = disk
  const findRow = database.prepare<[Buffer], { possible_duplicate: number }>(
    'select possible_duplicate from messages where id = ?',
  )
  const findOpen = database.prepare<[], Row>(`
    select id, state, next_at, waiting_for, lease_epoch from messages where state in ('waiting', 'sending')`)
  const countHooks = database
    .prepare<[], number>(`select count(*) from webhook_deliveries where state = 'pending'`)
    .pluck()
  const findLeased = database
    .prepare<[number], number>(`select claim from messages where state = 'sending' and lease_epoch = ?`)
    .pluck()
  const findTold = database
    .prepare<[], Buffer>(
      `
    select distinct events.id
    from webhook_deliveries
    join events on events.event_seq = webhook_deliveries.event_seq
    where webhook_deliveries.state = 'succeeded'`,
    )
    .pluck()
  const countUntold = database
    .prepare<[], number>(
      `
    select count(*)
    from events
    where message_seq is not null and kind in ('email.delivered', 'email.bounced', 'email.canceled')
      and not exists (select 1 from webhook_deliveries where webhook_deliveries.event_seq = events.event_seq)`,
    )
    .pluck()
  const countAll = database.prepare<[], number>('select count(*) from messages').pluck()

  /** What no time of this world ends: the allowance of a warming IP that is the only one. */
  function isNamedWait(rows: readonly Row[], process: SimulatedProcess): boolean {
    if (!settings.isWarming || settings.ips > 1) return rows.length === 0
    const reasons = process.dispatcher.waitingByReason()
    const named = NAMED_WAITS.reduce((sum, reason) => sum + (reasons[reason] ?? 0), 0)
    return rows.every(({ state }) => state === 'waiting') && named >= rows.length
  }

  function describe(row: Row, process: SimulatedProcess | undefined): string {
    const next = row.state === 'waiting' ? `, due in ${(row.next_at - time.wall()) / 1_000} s` : ''
    const told = process === undefined ? '' : `, of epoch ${row.lease_epoch ?? '-'} (now ${process.epoch})`
    return `${row.id.toString('hex')} is ${row.state}${next}${told}, waiting for ${row.waiting_for ?? 'nothing'}`
  }

  return {
    noteAccepted(ids, { sender }) {
      for (const id of ids) accepted.add(id)
      if (sender === SMALL_SENDER) small = { ids: new Set(ids), since: time.now(), lastAt: time.now() }
    },
    noteRecipient({ ip, site }, messageId) {
      digest.update(`${time.now()} ${ip} ${site} ${messageId}\n`)
      const isWarming = settings.isWarming && ip === IPS[settings.ips - 1]
      if (!isWarming) return
      const ofIp = tried.get(ip) ?? new Set()
      tried.set(ip, ofIp)
      ofIp.add(messageId)
      const most = mayHaveLaterStage ? 7 * FIRST_STAGE : FIRST_STAGE
      if (ofIp.size > most) fail(new Violation('cap', `${ip} tried ${ofIp.size} new messages, of ${most}`))
    },
    noteTaken({ messageId }, earlier) {
      taken++
      if (small.ids.has(messageId)) small.lastAt = time.now()
      if (earlier.length === 0) return
      const row = findRow.get(bytesOf(messageId))
      if (row?.possible_duplicate === 1) return
      fail(new Violation('duplicate', `${messageId} was taken twice, at ${earlier[0]?.at} and ${time.now()}`))
    },
    noteConnection({ ip, site }, count) {
      if (count <= mostConnections) return
      fail(new Violation('connection', `${ip} has ${count} connections to ${site}, of ${mostConnections}`))
    },
    notePosted: (eventId) => void posted.add(eventId),
    notePost(message) {
      if (message.kind !== 'dispatch' || !isRateSteady) return
      const interval = settings.rate.per_milliseconds / settings.rate.count
      const burst = Math.min(100, Math.max(1, Math.floor((1_000 + 1e-3) / interval)))
      for (const { path, rows } of message.batches) {
        const bucket = buckets.get(path.key) ?? { arrivalAt: 0 }
        buckets.set(path.key, bucket)
        bucket.arrivalAt = Math.max(bucket.arrivalAt, time.now()) + rows.length * interval
        // A whole millisecond of rounding.
        const ahead = bucket.arrivalAt - time.now() - burst * interval
        if (ahead > 2) fail(new Violation('rate', `${path.key} is ${ahead} ms ahead of its rate`))
      }
    },
    noteCall(verb, argument) {
      if (verb === 'unclaim') givenBack += (argument as UnclaimRequest).rows.length
    },
    noteLog(phrase, fields) {
      const excuses = ALARMS[phrase]
      if (excuses === undefined || excuses.some(has)) return
      fail(new Violation('alarm', `${phrase} ${JSON.stringify(fields)}`))
    },
    look(process) {
      // Only while nothing is said between the threads do both sides know the same.
      if (process === undefined || process.open.count > 0 || process.traffic.underWay > 0) return
      const leased = new Set(findLeased.all(process.epoch))
      const held = process.dispatcher.holders()
      const orphan = [...leased].find((claim) => !held.has(claim))
      if (orphan !== undefined) fail(new Violation('holders', `nobody holds the claim ${orphan}`))
      const stale = mayLapse ? undefined : [...held.keys()].find((claim) => !leased.has(claim))
      if (stale === undefined) return
      fail(new Violation('holders', `${held.get(stale)?.by} holds the claim ${stale}, which has ended`))
    },
    isAllOver(process) {
      if (process === undefined) return false
      return isNamedWait(findOpen.all(), process) && (!settings.hasWebhook || countHooks.get() === 0)
    },
    judge(process) {
      const open = findOpen.all()
      const [first] = open
      if (first !== undefined && process !== undefined && !isNamedWait(open, process)) {
        const count = `${open.length} of ${countAll.get()} messages have not ended`
        return fail(new Violation('liveness', `${count}; ${describe(first, process)}`))
      }
      for (const id of accepted) {
        if (findRow.get(bytesOf(id)) === undefined) return fail(new Violation('lost', `${id} is not in the store`))
      }
      const waited = small.lastAt - small.since
      if (isCrowd && waited > longestTurn(settings)) {
        return fail(new Violation('turns', `the few messages of ${SMALL_SENDER} waited ${waited} ms`))
      }
      const unposted = findTold.all().filter((id) => !posted.has(identifierFromBytes('evt', id)))
      if (unposted.length > 0)
        return fail(new Violation('event', `${unposted.length} events count as told, and are not`))
      const untold = countUntold.get() ?? 0
      if (untold > 0) return fail(new Violation('event', `${untold} events have no webhook delivery`))
      if (!settings.hasWebhook) return
      const hooks = countHooks.get() ?? 0
      if (hooks > 0) fail(new Violation('event', `${hooks} webhook deliveries have not ended`))
    },
    longestWait({ limits }) {
      const shares = items.map(({ happening }) => (happening.what === 'reload' ? happening.rateShare : 1))
      const share = Math.min(limits.rateShare, ...shares)
      const perSecond = (1_000 * Math.max(1, Math.round(settings.rate.count * share))) / settings.rate.per_milliseconds
      const messages = items.reduce(
        (sum, { happening }) => sum + (happening.what === 'accept' ? happening.count : 0),
        0,
      )
      const back = items.reduce(
        (sum, { happening }) => sum + (happening.what === 'jump' ? Math.max(0, -happening.milliseconds) : 0),
        0,
      )
      const turn = settings.threadDelay + settings.commitTime + settings.turnTime
      const sending = (messages / perSecond) * 1_000 + messages * (200 + 8 * turn)
      const hooks = settings.hasWebhook ? HOOK_WAITS : 0
      const confirmed = has('jump') || has('dns') ? 2 * HOUR : 10 * MINUTE
      const lostIp = has('lose-address') ? LOST_IP_WAIT : 0
      return 1.2 * sending + back + PATH_WAIT + lostIp + 2 * LONGEST_RETRY + hooks + confirmed
    },
    digest: () => digest.digest('hex').slice(0, 16),
    counts: () => ({ messages: countAll.get() ?? 0, delivered: taken, givenBack }),
  }
}

/**
 * What stands before a lane that comes late: what is on the path already (5 s of its rate) and a claim of 150 rows,
 * then one of the others' for each of its own.
 */
function longestTurn({ rate }: Settings): number {
  return 5_000 + (150 + 2 * SMALL_CROWD) * (rate.per_milliseconds / rate.count) + 2_000
}

/** As the store keeps it. */
export function bytesOf(messageId: string): Buffer {
  return identifierToBytes('msg', messageId) ?? Buffer.alloc(0)
}
