/**
 * A server with a full queue: so many messages to 5,000 destinations, all due at one moment.
 *
 * Measured are its memory, the answers to POSTs before and while it drains, when the first message of a destination
 * leaves that nobody has written to before, and how long a restart takes until the first message arrives.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { startKeepingSink } from '../../test/support/keeping-sink.ts'
import type { KeepingSink } from '../../test/support/keeping-sink.ts'
import { until } from '../../test/support/until.ts'
import type { Zone } from '../../test/support/zone.ts'
import { median, percentile, threeDigits } from './figures.ts'
import { runLoad } from './load.ts'
import { batchBody, messageBody } from './message.ts'
import { bytesOf } from './posthorn-system.ts'
import { FROM, startPosthorn } from './posthorn.ts'
import type { Posthorn } from './posthorn.ts'
import { peakMemoryBytes, residentBytes } from './process-figures.ts'
import { startSink } from './sink.ts'
import type { Sink } from './sink.ts'

export interface FullServerFigures {
  queued: number
  residentMegabytes: number
  peakMegabytes: number
  /** Of a POST by one of ten clients: median on the empty queue, 99th percentile while it drains. */
  emptyPostMilliseconds: number
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
/** Slower than any machine accepts a batch. */
const FILLED_PER_SECOND = 1_500
const SPARE_SECONDS = 10
const DEADLINE = 120_000
const MEBIBYTE = 1_048_576

export async function measureFullServer(queued: number): Promise<FullServerFigures> {
  const newcomers = await startKeepingSink({ address: '127.0.0.2' })
  const sink = await startSink('127.0.0.1', newcomers.port)
  const posthorn = await startPosthorn({ deliveryPort: newcomers.port, names: destinations() })
  try {
    const empty = await post(posthorn, 'dest.test')
    const dueAt = await fill(posthorn, queued)
    await sleep(Math.max(0, dueAt - Date.now()))
    const before = sink.taken()
    await sink.received(before + 1, DEADLINE)
    const [drainingSince, drained] = [performance.now(), sink.taken()]
    const residentMegabytes = Math.round(residentBytes(posthorn.server.processId) / MEBIBYTE)
    const draining = await post(posthorn, 'dest.test')
    const waits = await writeToNewcomers(posthorn, newcomers)
    const drainedPerSecond = ((sink.taken() - drained) * 1_000) / (performance.now() - drainingSince)
    const peakMegabytes = Math.round(peakMemoryBytes(posthorn.server.processId) / MEBIBYTE)
    const restartMilliseconds = await restart(posthorn, sink)
    return {
      queued, residentMegabytes, peakMegabytes,
      emptyPostMilliseconds: threeDigits(percentile(empty, 0.5)),
      drainingPostMilliseconds: threeDigits(percentile(draining, 0.99)),
      newDestinationMilliseconds: threeDigits(median(waits)),
      worstNewDestinationMilliseconds: threeDigits(Math.max(...waits)),
      restartMilliseconds: threeDigits(restartMilliseconds),
      drainedPerSecond: threeDigits(drainedPerSecond),
    }
  } finally {
    await posthorn.stop()
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
async function post({ server, key }: Posthorn, recipientDomain: string): Promise<number[]> {
  const { latencies } = await runLoad({
    baseUrl: server.baseUrl, apiKey: key, clients: CLIENTS, messages: POSTS,
    body: messageBody({ from: FROM, recipientDomain, htmlBytes: bytesOf(10) }),
  })
  return latencies
}

/** Returns when all of it is due, in Unix milliseconds. */
async function fill({ server, key }: Posthorn, queued: number): Promise<number> {
  const dueAt = Math.ceil(Date.now() / 1_000 + queued / FILLED_PER_SECOND + SPARE_SECONDS)
  const recipientDomain = (number: number): string => `d${number % DESTINATIONS}.test`
  await runLoad({
    baseUrl: server.baseUrl, apiKey: key, clients: 2, path: '/v1/email/batch', messages: Math.ceil(queued / RECIPIENTS),
    body: batchBody({ from: FROM, recipientDomain, htmlBytes: bytesOf(10) }, RECIPIENTS, { send_at: dueAt }),
  })
  if (dueAt * 1_000 < Date.now()) throw new Error(`${queued} messages were not accepted before they were due`)
  return dueAt * 1_000
}

/** One message each, one after the other. */
async function writeToNewcomers({ server, key }: Posthorn, newcomers: KeepingSink): Promise<number[]> {
  const waits: number[] = []
  for (let index = 0; index < NEW_DESTINATIONS; index += 1) {
    const startedAt = performance.now()
    await runLoad({
      baseUrl: server.baseUrl, apiKey: key, clients: 1, messages: 1,
      body: messageBody({ from: FROM, recipientDomain: `new-${index}.test`, htmlBytes: bytesOf(10) }),
    })
    await until(`new-${index}.test has its message`, () => newcomers.mails.length > index, DEADLINE)
    waits.push(performance.now() - startedAt)
  }
  return waits
}

async function restart({ server }: Posthorn, sink: Sink): Promise<number> {
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
