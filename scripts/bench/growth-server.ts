/**
 * A server with a full queue: so many messages to 5,000 destinations, all due at one moment, accepted over HTTP in
 * batches of 1,000 recipients.
 *
 * Measured are its memory (before anything, with the full queue, while it drains), the answers to POSTs before and
 * while it drains, when the first message of a destination leaves that nobody has written to before, and how long a
 * restart takes until the first message arrives. Works with queues of any size: where little is left, what the restart
 * needs is accepted right before it. Throws when a step takes much longer than it may; progress is told on stderr.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { DAY, SECOND } from '../../src/base/clock.ts'
import { startKeepingSink, type KeepingSink } from '../../test/support/keeping-sink.ts'
import { until } from '../../test/support/until.ts'
import type { Zone } from '../../test/support/zone.ts'
import { readThrough } from './database-figures.ts'
import { median, percentile, threeDigits } from './figures.ts'
import type { TellProgress } from './growth-progress.ts'
import { runLoad } from './load.ts'
import { batchBody, messageBody } from './message.ts'
import { bytesOf } from './sternpost-system.ts'
import { FROM, startSternpost, type Sternpost } from './sternpost.ts'
import { peakMemoryBytes, residentBytes } from './process-figures.ts'
import { startSink, type Sink } from './sink.ts'

export interface FullServerFigures {
  queued: number
  acceptedPerSecond: number
  /** Of all that waits and is due when the measurement begins. */
  dueAtOnce: number
  idleMegabytes: number
  /** With the full queue, when nothing of it is due yet. */
  fullMegabytes: number
  /** At the end of all that is measured while it drains, and the most it ever was. */
  drainingMegabytes: number
  peakMegabytes: number
  /**
   * Of a POST by one of ten clients: median on the empty queue; 99th percentile in the seconds after all has become due
   * at once, when every destination is looked up and connected to; median and 99th percentile while it drains then.
   */
  emptyPostMilliseconds: number
  beginningPostMilliseconds: number
  drainingMedianMilliseconds: number
  drainingPostMilliseconds: number
  /** From the POST to the arrival at a new destination: median and worst of several. */
  newDestinationMilliseconds: number
  worstNewDestinationMilliseconds: number
  /** From the start of the process to the first message at the sink. */
  restartMilliseconds: number
  drainedPerSecond: number
}

const DESTINATIONS = 5_000
const NEW_DESTINATIONS = 9
const RECIPIENTS = 1_000
const CLIENTS = 10
const POSTS = 2_000
/**
 * So many batches, due a day later, say how fast the queue is filled. Where it becomes slower than this share of it, part
 * of the queue is due before the last is there.
 */
const BATCHES_OF_A_TRY = 20
const SHARE_OF_SPEED = 0.85
const SPARE_SECONDS = 5
/** Milliseconds before the queue is due: more than it takes. */
const READ_BEFORE = 2 * SECOND
const TOLD_EVERY = 50
/** As many are there for the restart: more than leaves while the process is being killed. */
const FOR_RESTART = 5_000
const DEADLINE = 120_000
const MEBIBYTE = 1_048_576

export async function measureFullServer(queued: number, tell: TellProgress): Promise<FullServerFigures> {
  const newcomers = await startKeepingSink({ address: '127.0.0.2' })
  const sink = await startSink('127.0.0.1', newcomers.port)
  const sternpost = await startSternpost({ deliveryPort: newcomers.port, names: destinations() })
  const megabytes = (): number => Math.round(residentBytes(sternpost.server.processId) / MEBIBYTE)
  try {
    const idleMegabytes = megabytes()
    const empty = await post(sternpost, 'dest.test')
    await sink.received(POSTS, DEADLINE)
    tell(`${POSTS} POSTs on the empty queue, ${megabytes()} MB (idle ${idleMegabytes})`)
    const { dueAt, seconds } = await fill(sternpost, queued, tell)
    const fullMegabytes = megabytes()
    await keepAwake(sternpost, dueAt)
    const dueAtOnce = queued + POSTS - sink.taken()
    await sink.received(POSTS + 1, DEADLINE)
    tell(`${dueAtOnce} are due, ${fullMegabytes} MB`)
    const [drainingSince, drained] = [performance.now(), sink.taken()]
    const beginning = await post(sternpost, 'dest.test')
    tell(`${POSTS} POSTs while all destinations are looked up and connected to, ${megabytes()} MB`)
    const draining = await post(sternpost, 'dest.test')
    tell(`${POSTS} POSTs while it drains, ${megabytes()} MB`)
    const waits = await writeToNewcomers(sternpost, newcomers)
    const drainedPerSecond = ((sink.taken() - drained) * 1_000) / (performance.now() - drainingSince)
    tell(`new destinations after ${waits.map(Math.round).join(', ')} ms; ${Math.round(drainedPerSecond)} a second`)
    const drainingMegabytes = megabytes()
    const peakMegabytes = Math.round(peakMemoryBytes(sternpost.server.processId) / MEBIBYTE)
    const restartMilliseconds = await restart(sternpost, sink, queued + 3 * POSTS)
    tell(`first message ${Math.round(restartMilliseconds)} ms after a restart, ${megabytes()} MB`)
    return {
      queued,
      dueAtOnce,
      idleMegabytes,
      fullMegabytes,
      drainingMegabytes,
      peakMegabytes,
      acceptedPerSecond: threeDigits(queued / seconds),
      emptyPostMilliseconds: threeDigits(percentile(empty, 0.5)),
      beginningPostMilliseconds: threeDigits(percentile(beginning, 0.99)),
      drainingMedianMilliseconds: threeDigits(percentile(draining, 0.5)),
      drainingPostMilliseconds: threeDigits(percentile(draining, 0.99)),
      newDestinationMilliseconds: threeDigits(median(waits)),
      worstNewDestinationMilliseconds: threeDigits(Math.max(...waits)),
      restartMilliseconds: threeDigits(restartMilliseconds),
      drainedPerSecond: threeDigits(drainedPerSecond),
    }
  } finally {
    await sternpost.stop()
    await sink.stop()
    await newcomers.close()
  }
}

/** Each with hosts of its own: a path for each IP and destination. */
function destinations(): Zone {
  const zone: Zone = {}
  for (let index = 0; index < DESTINATIONS; index += 1) {
    zone[`d${index}.test`] = { MX: [`10 mx.d${index}.test`] }
    zone[`mx.d${index}.test`] = { A: ['127.0.0.1'] }
  }
  for (let index = 0; index < NEW_DESTINATIONS; index += 1) {
    zone[`new-${index}.test`] = { MX: [`10 mx.new-${index}.test`] }
    zone[`mx.new-${index}.test`] = { A: ['127.0.0.2'] }
  }
  return zone
}

/** Milliseconds from request to answer, ascending. */
async function post({ server, key }: Sternpost, recipientDomain: string): Promise<number[]> {
  const { latencies } = await runLoad({
    baseUrl: server.baseUrl,
    apiKey: key,
    clients: CLIENTS,
    messages: POSTS,
    body: messageBody({ from: FROM, recipientDomain, htmlBytes: bytesOf(10) }),
  })
  return latencies
}

const toDestinations = { from: FROM, recipientDomain: (number: number) => `d${number % DESTINATIONS}.test` }

/** `dueAt`: when all of it is due, in Unix milliseconds; `seconds` the filling took. */
async function fill(
  sternpost: Sternpost,
  queued: number,
  tell: TellProgress,
): Promise<{ dueAt: number; seconds: number }> {
  const batches = Math.ceil(queued / RECIPIENTS)
  const nowSeconds = (): number => Date.now() / 1_000
  const tryTook = await postBatches(sternpost, BATCHES_OF_A_TRY, nowSeconds() + DAY / SECOND)
  const expected = (batches / BATCHES_OF_A_TRY) * (tryTook / SHARE_OF_SPEED)
  const dueAt = Math.ceil(nowSeconds() + expected + SPARE_SECONDS)
  const seconds = await postBatches(sternpost, batches, dueAt, (index) => {
    if (index > 0 && index % TOLD_EVERY === 0) tell(`${index * RECIPIENTS} of ${queued} accepted`)
  })
  tell(`${queued} accepted, ${Math.round(queued / seconds)} a second`)
  return { dueAt: dueAt * 1_000, seconds }
}

/**
 * Until the queue is due. Some kernels give up the file pages of who is idle for a minute, which no server with a full
 * queue is: a batch each second, due a day later, and the database is read.
 */
async function keepAwake(sternpost: Sternpost, dueAt: number): Promise<void> {
  while (Date.now() < dueAt - READ_BEFORE) {
    await sleep(SECOND)
    await postBatches(sternpost, 1, (dueAt + DAY) / SECOND)
  }
  await readThrough(sternpost.server.databaseFolder)
  await sleep(Math.max(0, dueAt - Date.now()))
}

/** Seconds that the answers to so many batches took. `sendAt`: in Unix seconds; null: at once. `onBatch`: before each. */
async function postBatches(
  { server, key }: Sternpost,
  batches: number,
  sendAt: number | null,
  onBatch: (index: number) => void = () => {},
): Promise<number> {
  const more = sendAt === null ? {} : { send_at: Math.ceil(sendAt) }
  const batch = batchBody({ ...toDestinations, htmlBytes: bytesOf(10) }, RECIPIENTS, more)
  const { seconds } = await runLoad({
    baseUrl: server.baseUrl,
    apiKey: key,
    clients: 2,
    path: '/v1/email/batch',
    messages: batches,
    body(index) {
      onBatch(index)
      return batch(index)
    },
  })
  return seconds
}

/** One message each, one after the other. */
async function writeToNewcomers({ server, key }: Sternpost, newcomers: KeepingSink): Promise<number[]> {
  const waits: number[] = []
  for (let index = 0; index < NEW_DESTINATIONS; index += 1) {
    const startedAt = performance.now()
    await runLoad({
      baseUrl: server.baseUrl,
      apiKey: key,
      clients: 1,
      messages: 1,
      body: messageBody({ from: FROM, recipientDomain: `new-${index}.test`, htmlBytes: bytesOf(10) }),
    })
    await until(`new-${index}.test has its message`, () => newcomers.mails.length > index, DEADLINE)
    waits.push(performance.now() - startedAt)
  }
  return waits
}

/** Milliseconds from the start to the first message. `accepted`: for the sink, so far. */
async function restart(sternpost: Sternpost, sink: Sink, accepted: number): Promise<number> {
  if (accepted - sink.taken() < FOR_RESTART) await postBatches(sternpost, FOR_RESTART / RECIPIENTS, null)
  const { server } = sternpost
  await server.kill()
  // What was under way is at the sink by then.
  await sleep(1_000)
  const already = sink.taken()
  const startedAt = performance.now()
  const started = server.start()
  await sink.received(already + 1, DEADLINE)
  const milliseconds = performance.now() - startedAt
  await started
  return milliseconds
}
