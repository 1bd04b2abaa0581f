/**
 * What a round trip costs: messages per second and connection through a proxy that adds 50 ms, in turns with Postfix's
 * smtp client through the same proxy; and how many connections Sternpost holds at once when the other side takes long.
 *
 * The rate is that of the messages which were answered between the first fifth and the last fifth, over the time that
 * connections worked on them, all added up (`connection-work.ts`): open ones that rest in a cache are not divided by.
 * Held are those to as many destinations as it takes: a path begins with two connections and gets one more only for
 * what it delivers, which with a round trip of seconds takes minutes.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { freePort } from '../../test/support/serve-process.ts'
import { providersWith } from './changed-settings.ts'
import type { Work } from './connection-work.ts'
import { median, threeDigits } from './figures.ts'
import { runLoad } from './load.ts'
import { batchBody, messageBody } from './message.ts'
import type { BenchOptions } from './options.ts'
import { startPostfixRelay } from './postfix-system.ts'
import { bytesOf } from './sternpost-system.ts'
import { FROM, startSternpost, type Sternpost } from './sternpost.ts'
import { peakMemoryBytes } from './process-figures.ts'
import { startChunkingSink, startSink, type Sink } from './sink.ts'
import { runSmtpSource } from './smtp-source.ts'

export interface LatencyFigures {
  roundTripMilliseconds: number
  /** Messages per second and connection. */
  sternpost: number
  postfix: number
  /** Those that worked, on average. */
  connections: { sternpost: number; postfix: number }
  /** Connections at once within a minute, of so many that were allowed, and Sternpost's memory at its peak. */
  held: Held
  /** With a host that offers CHUNKING, and so many messages of a connection in flight; and held at once with 4. */
  chunking: { inFlight: number; sternpost: number; connections: number }[]
  heldInFlight: Held
}

interface Held {
  connections: number
  allowed: number
  destinations: number
  megabytes: number
}

interface Proxy {
  port: number
  /** Since the last call: connections at once, and what all of them did. */
  count(): Promise<Work & { peak: number }>
  stop(): Promise<void>
}

const PROXY = fileURLToPath(new URL('./delay-proxy.ts', import.meta.url))
const ROUND_TRIP = 50
const PATH_CONNECTIONS = 5
const IPS = 2
const MESSAGES = 1_000
const IN_FLIGHT = [1, 4, 8]
/** Of a path, with flights: the processor is not to be what is measured. */
const FLYING_CONNECTIONS = 1
/** One message takes some seconds: a thousand connections are busy with a few hundred messages a second. */
const LONG_ROUND_TRIP = 4_000
const HELD_IPS = 10
/** Of a path that has just begun (egress/README.md "Concurrency"). */
const FIRST_CONNECTIONS = 2
const HELD = 1_000
/** As many recipients each as there are connections: work for all of them. */
const HELD_BATCHES = 4
const HELD_DESTINATIONS = HELD / HELD_IPS / FIRST_CONNECTIONS
const DEADLINE = 300_000
/** What has not been opened by then will not be. */
const HELD_DEADLINE = 60_000
const LOOK_EVERY = 500
const MEBIBYTE = 1_048_576

export async function measureLatency({ runs }: BenchOptions): Promise<LatencyFigures> {
  const sinkPort = await freePort()
  const sink = await startSink('127.0.0.1', sinkPort)
  const proxy = await startProxy(sinkPort, ROUND_TRIP)
  const taken: { sternpost: Rate; postfix: Rate }[] = []
  try {
    const concurrency = String(PATH_CONNECTIONS * IPS)
    const postfix = await startPostfixRelay({
      sinkPort: proxy.port,
      domain: '',
      more: { default_destination_concurrency_limit: concurrency, initial_destination_concurrency: concurrency },
    })
    const sternpost = await startSternpost({
      deliveryPort: proxy.port,
      ips: IPS,
      providers: providersWith(PATH_CONNECTIONS, 1),
    })
    try {
      for (let run = 0; run < runs; run += 1) {
        const ours = await rateOf(sink, proxy, () => post(sternpost))
        const theirs = await rateOf(sink, proxy, () =>
          runSmtpSource({
            port: postfix.port,
            sessions: 4,
            messages: MESSAGES,
            htmlBytes: bytesOf(10),
            from: FROM,
            recipientDomain: 'dest.test',
          }),
        )
        taken.push({ sternpost: ours, postfix: theirs })
      }
    } finally {
      await sternpost.stop()
      postfix.stop()
    }
  } finally {
    await proxy.stop()
    await sink.stop()
  }
  const of = (name: 'sternpost' | 'postfix', figure: keyof Rate): number =>
    threeDigits(median(taken.map((run) => run[name][figure])))
  return {
    roundTripMilliseconds: ROUND_TRIP,
    sternpost: of('sternpost', 'perConnection'),
    postfix: of('postfix', 'perConnection'),
    connections: { sternpost: of('sternpost', 'connections'), postfix: of('postfix', 'connections') },
    held: await measureHeld((port) => startSink('127.0.0.1', port)),
    chunking: await measureChunking(runs),
    heldInFlight: await measureHeld(startChunkingSink),
  }
}

async function measureChunking(runs: number): Promise<LatencyFigures['chunking']> {
  const sinkPort = await freePort()
  const sink = await startChunkingSink(sinkPort)
  const proxy = await startProxy(sinkPort, ROUND_TRIP)
  const figures: LatencyFigures['chunking'] = []
  try {
    for (const inFlight of IN_FLIGHT) {
      const providers = providersWith(FLYING_CONNECTIONS, inFlight)
      const sternpost = await startSternpost({ deliveryPort: proxy.port, ips: IPS, providers })
      const taken: Rate[] = []
      try {
        for (let run = 0; run < runs; run += 1) taken.push(await rateOf(sink, proxy, () => post(sternpost)))
      } finally {
        await sternpost.stop()
      }
      const of = (figure: keyof Rate): number => threeDigits(median(taken.map((rate) => rate[figure])))
      figures.push({ inFlight, sternpost: of('perConnection'), connections: of('connections') })
    }
  } finally {
    await proxy.stop()
    await sink.stop()
  }
  return figures
}

interface Rate {
  perConnection: number
  connections: number
}

async function rateOf(sink: Sink, proxy: Proxy, handOver: () => Promise<unknown>): Promise<Rate> {
  const already = sink.taken()
  const handedOver = handOver()
  await sink.received(already + MESSAGES * 0.2, DEADLINE)
  await proxy.count()
  const startedAt = performance.now()
  await sink.received(already + MESSAGES * 0.8, DEADLINE)
  const { messages, seconds } = await proxy.count()
  const elapsed = (performance.now() - startedAt) / 1_000
  await handedOver
  await sink.received(already + MESSAGES, DEADLINE)
  return { perConnection: messages / seconds, connections: seconds / elapsed }
}

async function measureHeld(start: (port: number) => Promise<Sink>): Promise<Held> {
  const sinkPort = await freePort()
  const sink = await start(sinkPort)
  const proxy = await startProxy(sinkPort, LONG_ROUND_TRIP)
  const domains = Array.from({ length: HELD_DESTINATIONS }, (_, index) => `d${index}.held.test`)
  const sternpost = await startSternpost({
    deliveryPort: proxy.port,
    ips: HELD_IPS,
    names: Object.fromEntries(
      domains.flatMap((domain) => [
        [domain, { MX: [`10 mx.${domain}`] }],
        [`mx.${domain}`, { A: ['127.0.0.1'] }],
      ]),
    ),
  })
  try {
    const posting = postTo(domains, sternpost)
    const end = performance.now() + HELD_DEADLINE
    let connections = 0
    while (connections < HELD && performance.now() < end) {
      await sleep(LOOK_EVERY)
      connections = Math.max(connections, (await proxy.count()).peak)
    }
    await posting
    const megabytes = Math.round(peakMemoryBytes(sternpost.server.processId) / MEBIBYTE)
    return { connections, allowed: HELD, destinations: HELD_DESTINATIONS, megabytes }
  } finally {
    await sternpost.stop()
    await proxy.stop()
    await sink.stop()
  }
}

function post({ server, key }: Sternpost): Promise<unknown> {
  return runLoad({
    baseUrl: server.baseUrl,
    apiKey: key,
    clients: 20,
    messages: MESSAGES,
    body: messageBody({ from: FROM, recipientDomain: 'dest.test', htmlBytes: bytesOf(10) }),
  })
}

/** Batches, their recipients at all of these domains in turn. */
function postTo(domains: readonly string[], { server, key }: Sternpost): Promise<unknown> {
  const recipientDomain = (number: number): string => domains[number % domains.length] ?? ''
  return runLoad({
    baseUrl: server.baseUrl,
    apiKey: key,
    clients: 1,
    messages: HELD_BATCHES,
    path: '/v1/email/batch',
    body: batchBody({ from: FROM, recipientDomain, htmlBytes: bytesOf(10) }, HELD),
  })
}

async function startProxy(targetPort: number, roundTrip: number): Promise<Proxy> {
  const words = [String(targetPort), String(roundTrip / 2)]
  const child = fork(PROXY, words, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  const [port] = await once(child, 'message')
  return {
    port: Number(port),
    async count() {
      child.send('count')
      const [counts] = await once(child, 'message')
      return counts as Awaited<ReturnType<Proxy['count']>>
    },
    async stop() {
      const ended = once(child, 'exit')
      child.disconnect()
      await Promise.race([ended, sleep(DEADLINE, undefined, { ref: false })])
    },
  }
}
