/**
 * The store's verbs on queues of different sizes: CPU of the store thread for a message that is accepted (10 KB, single
 * send), claimed, and recorded (dot mark, outcome, event, webhook delivery). Each queue is a database of its own.
 *
 * A destination is a mailbox provider of its own, and any IP sends to any. The batches are those that the dispatcher
 * makes while it drains 5,000 destinations, also for one destination, where larger ones would cost less a message. The
 * day has begun: before, so many were sent that the providers which get rows of their own in the statistics of an IP
 * have them.
 */
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { newIdentifier } from '../../src/base/identifier.ts'
import type { NewMessage } from '../../src/store/records/accept-records.ts'
import type { QueueKey } from '../../src/store/records/queue-records.ts'
import type { ClaimedMessage } from '../../src/store/records/claim-records.ts'
import { databasePath } from '../../src/store/sqlite/engine/database.ts'
import type { Store } from '../../src/store/store.ts'
import { locationIn, openTestStore } from '../../test/store/sqlite-support.ts'
import {
  acceptRequest,
  delivered,
  LEASE,
  LIFETIME,
  outcomeRecord,
  sampleContent,
  webhookEndpoint,
} from '../../test/store/store-samples.ts'
import { readThrough } from './database-figures.ts'
import { median, threeDigits } from './figures.ts'
import type { TellProgress } from './growth-progress.ts'
import { htmlOf } from './message.ts'
import { bytesOf } from './sternpost-system.ts'
import { threadCpuSeconds } from './process-figures.ts'

export interface StoreGrowthRow {
  queued: number
  destinations: number
  ips: number
  acceptMicroseconds: number
  claimMicroseconds: number
  recordMicroseconds: number
  /** Of recordMicroseconds to those of the queue of this size to one destination. */
  recordRatio: number
  fileMegabytes: number
}

const SMALL = 20_000
const DESTINATIONS = 5_000
const IPS = 64
/** The host's speed varies: each queue is measured so many times, in turns, and each turn is compared by itself. */
const TURNS = 15
/** One in which sums are written: so many messages are in the records that wait for it. In all turns fewer than SMALL. */
const PER_TURN = 1_280
const PER_REQUEST = 1_000
/** Counted while the dispatcher drained 5,000 destinations: 17 keys and 33 rows in a claim, 19 outcomes in a record. */
const CLAIM_AT_ONCE = 32
const KEYS_AT_ONCE = 16
const RECORD_AT_ONCE = 20
const SENT_BEFORE = 15_000
const UNDER_WAY = 50
const PAGE_CACHE = 8 * 1_048_576
const MEGABYTE = 1_048_576

export async function measureStoreGrowth(most: number, tell: TellProgress): Promise<StoreGrowthRow[]> {
  const queues: Queue[] = []
  try {
    for (const [queued, destinations, ips] of [
      [SMALL, 1, 1],
      [SMALL, DESTINATIONS, IPS],
      [most, 1, 1],
      [most, DESTINATIONS, IPS],
    ] as const) {
      tell(`a queue of ${queued} messages to ${destinations} destinations is made`)
      queues.push(await makeQueue(queued, destinations, ips))
    }
    // Some kernels give up the pages of a file that rests for a minute, as the first did while the last was made.
    for (const { folder } of queues) await readThrough(dataIn(folder))
    for (let turn = 0; turn < TURNS; turn += 1) {
      tell(`the store's verbs, turn ${turn + 1} of ${TURNS}`)
      // The system still writes what the one before left: each is that one as often as the other.
      for (const queue of turn % 2 === 0 ? queues : queues.toReversed()) queue.costs.push(await measureTurn(queue))
    }
    return queues.map((queue) => rowOf(queue, queues.find(({ queued }) => queued === queue.queued) ?? queue))
  } finally {
    for (const { store, folder, log } of queues) {
      log.close()
      await store.close()
      rmSync(folder, { recursive: true, force: true })
    }
  }
}

interface Queue {
  queued: number
  destinations: number
  ips: number
  folder: string
  store: Store
  now: number
  epoch: number
  /** Destination whose turn it is to be claimed: each has what its share of the queue is once. */
  nextKey: number
  log: ReturnType<typeof openLog>
  costs: Costs[]
}

/** Microseconds of the store thread for a message. */
interface Costs {
  accept: number
  claim: number
  record: number
}

async function makeQueue(queued: number, destinations: number, ips: number): Promise<Queue> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-bench-store-'))
  const { store } = await openTestStore(locationIn(folder, { pageCacheBytes: PAGE_CACHE }))
  const now = Date.now()
  const { epoch } = await store.beginEpoch(now, now)
  const log = openLog(databasePath({ folder: dataIn(folder) }))
  const queue: Queue = { queued, destinations, ips, folder, store, now, epoch, nextKey: 0, log, costs: [] }
  await store.addWebhookEndpoint(webhookEndpoint())
  await store.assignRoutes(
    Array.from({ length: destinations }, (_, index) => ({
      domain: domainOf(index),
      route: `site-${index}`,
      isp: domainOf(index),
    })),
  )
  await fill(queue, SENT_BEFORE)
  await recordAll(queue, await claimAll(queue, SENT_BEFORE))
  await fill(queue, queued)
  return queue
}

/** What is accepted is of another stream than what is claimed, and stays. */
async function measureTurn(queue: Queue): Promise<Costs> {
  queue.log.move()
  const accept = await cost(queue, () => acceptSingles(queue))
  let claimed: ClaimedMessage[] = []
  const claim = await cost(queue, async () => {
    claimed = await claimAll(queue, PER_TURN)
  })
  const record = await cost(queue, () => recordAll(queue, claimed))
  return { accept: accept / PER_TURN, claim: claim / claimed.length, record: record / claimed.length }
}

function rowOf({ queued, destinations, ips, folder, costs }: Queue, { costs: toOne }: Queue): StoreGrowthRow {
  const ratios = costs.map(({ record }, turn) => record / (toOne[turn]?.record ?? Number.NaN))
  const middle = (verb: keyof Costs): number => threeDigits(median(costs.map((each) => each[verb])))
  return {
    queued,
    destinations,
    ips,
    acceptMicroseconds: middle('accept'),
    claimMicroseconds: middle('claim'),
    recordMicroseconds: middle('record'),
    recordRatio: threeDigits(median(ratios)),
    fileMegabytes: Math.round(statSync(databasePath({ folder: dataIn(folder) })).size / MEGABYTE),
  }
}

const dataIn = (folder: string): string => join(folder, 'data')

/** Microseconds of the store threads, of which only one works, and of moving the rest of the log that the work leaves. */
async function cost({ log }: Queue, work: () => Promise<void>): Promise<number> {
  const before = threadCpuSeconds(process.pid)['store'] ?? Number.NaN
  await work()
  return ((threadCpuSeconds(process.pid)['store'] ?? Number.NaN) - before) * 1_000_000 + log.move()
}

/** By a connection of its own: the store moves a part of the log at a time, and the next verb would pay for the last. */
function openLog(path: string) {
  const database = new Sqlite(path)
  const move = database.prepare('pragma wal_checkpoint(passive)')
  return {
    /** Moves all of it into the database; returns the microseconds it took. */
    move(): number {
      const before = process.threadCpuUsage()
      move.get()
      const { user, system } = process.threadCpuUsage(before)
      return user + system
    },
    close: (): void => void database.close(),
  }
}

function domainOf(index: number): string {
  return `d${index}.bench.test`
}

function messageTo(index: number, now: number, destinations: number): NewMessage {
  const recipientDomain = domainOf(index % destinations)
  return {
    id: newIdentifier('msg', now),
    to: { name: null, address: `reader-${index}@${recipientDomain}` },
    recipientDomain,
    variables: {},
    expiresAt: now + LIFETIME,
    isCaptured: false,
  }
}

async function fill({ store, now, destinations }: Queue, count: number): Promise<void> {
  for (let first = 0; first < count; first += PER_REQUEST) {
    const messages = Array.from({ length: PER_REQUEST }, (_, index) => messageTo(first + index, now, destinations))
    await store.acceptMessages(acceptRequest({ now, stream: 'bulk', messages }))
  }
}

/** So many at once as HTTP clients would. */
async function acceptSingles({ store, now, destinations }: Queue): Promise<void> {
  const html = htmlOf(bytesOf(10))
  let next = 0
  const client = async (): Promise<void> => {
    while (next < PER_TURN) {
      const number = next++
      const content = { ...sampleContent, html: `${html}<!-- ${number} -->` }
      await store.acceptMessages(acceptRequest({ now, content, messages: [messageTo(number, now, destinations)] }))
    }
  }
  await Promise.all(Array.from({ length: UNDER_WAY }, client))
}

/** Keys take turns, as in a fair round. */
async function claimAll(queue: Queue, most: number): Promise<ClaimedMessage[]> {
  const { store, epoch, now, destinations } = queue
  const claimed: ClaimedMessage[] = []
  const keys = Math.min(destinations, KEYS_AT_ONCE)
  for (; claimed.length < most; queue.nextKey += keys) {
    const asks = Array.from({ length: keys }, (_, index) => ({
      key: keyOf((queue.nextKey + index) % destinations),
      limit: CLAIM_AT_ONCE / keys,
    }))
    const { messages } = await store.claimDue({ now: now + 1, epoch, leaseUntil: now + LEASE, asks })
    if (messages.length === 0) throw new Error(`a queue of ${queue.queued} is too short; --stored must be more`)
    claimed.push(...messages)
  }
  return claimed
}

function keyOf(destination: number): QueueKey {
  return { pool: 'default', route: `site-${destination}`, domain: 'acme.com', stream: 'bulk', isRetry: false }
}

async function recordAll({ store, epoch, now, ips }: Queue, claimed: readonly ClaimedMessage[]): Promise<void> {
  for (let first = 0; first < claimed.length; first += RECORD_AT_ONCE) {
    const some = claimed.slice(first, first + RECORD_AT_ONCE)
    await store.markDotSent(
      epoch,
      some.map(({ key, claim }) => ({ key, claim })),
    )
    const outcomes = some.map((message) => {
      const ip = `127.0.1.${spread(message.key) % ips}`
      return { ...outcomeRecord(message, delivered, { ip, localAddress: ip }), isp: message.recipientDomain }
    })
    await store.recordOutcomes({ epoch, now: now + 2, outcomes })
  }
}

/** As even as the choice of an IP by message: without a step that IPs and destinations share. */
function spread(key: number): number {
  return Math.imul(key, 2_654_435_761) >>> 8
}
