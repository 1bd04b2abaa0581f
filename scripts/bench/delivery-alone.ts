/**
 * Delivery alone: the messages are accepted first and all due at one moment; the clock goes from there until the sink
 * has the last one. CPU is Sternpost's in that time.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { freePort } from '../../test/support/serve-process.ts'
import { median, threeDigits } from './figures.ts'
import { runLoad } from './load.ts'
import { messageBody } from './message.ts'
import type { BenchOptions } from './options.ts'
import { bytesOf } from './sternpost-system.ts'
import { FROM, startSternpost, type Sternpost } from './sternpost.ts'
import { cpuSeconds } from './process-figures.ts'
import { startSink, type Sink } from './sink.ts'

export interface DeliveryFigures {
  perSecond: number
  cpuMilliseconds: number
}

/** Slower than any machine accepts; the wait for the moment costs nothing but time. */
const ACCEPTED_PER_SECOND = 400
const SPARE_SECONDS = 3
const DEADLINE = 300_000

export async function measureDelivery({ clients, messages, runs }: BenchOptions): Promise<DeliveryFigures> {
  const port = await freePort()
  const sternpost = await startSternpost({ deliveryPort: port })
  const sink = await startSink('127.0.0.1', port)
  const taken: DeliveryFigures[] = []
  try {
    // The first run warms up.
    for (let run = 0; run <= runs; run += 1) {
      taken.push(await measureOnce(sternpost, sink, { clients, messages }))
      const expected = messages * (run + 1)
      await sternpost.check({ messages: expected, delivered: expected, webhookDeliveries: expected })
      await sternpost.settled(expected)
    }
  } finally {
    await sink.stop()
    await sternpost.stop()
  }
  const of = (name: keyof DeliveryFigures): number =>
    threeDigits(median(taken.slice(1).map((figures) => figures[name])))
  return { perSecond: of('perSecond'), cpuMilliseconds: of('cpuMilliseconds') }
}

async function measureOnce(
  { server, key }: Sternpost,
  sink: Sink,
  { clients, messages }: { clients: number; messages: number },
): Promise<DeliveryFigures> {
  const already = sink.taken()
  const dueAt = Math.ceil(Date.now() / 1_000 + messages / ACCEPTED_PER_SECOND + SPARE_SECONDS)
  const kind = { from: FROM, recipientDomain: 'dest.test', htmlBytes: bytesOf(10) }
  const body = messageBody(kind, { send_at: dueAt })
  await runLoad({ baseUrl: server.baseUrl, apiKey: key, clients, messages, body })
  const wait = dueAt * 1_000 - Date.now()
  if (wait <= 0) throw new Error(`${messages} messages were not accepted before they were due`)
  await sleep(wait)
  const [startedAt, cpuBefore] = [performance.now(), cpuSeconds(server.processId)]
  await sink.received(already + messages, DEADLINE)
  return {
    perSecond: (messages * 1_000) / (performance.now() - startedAt),
    cpuMilliseconds: ((cpuSeconds(server.processId) - cpuBefore) * 1_000) / messages,
  }
}
