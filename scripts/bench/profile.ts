/**
 * CPU of each stage of the whole way: the server runs under `--cpu-prof`, its threads' CPU comes from process
 * accounting, and the profile says how each thread's part divides. Signatures are computed by the thread pool, which no
 * profile sees: its CPU is that of DKIM. Profiling itself costs some; what it costs in a thread of its own is left out.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '../../test/support/serve-process.ts'
import { threeDigits } from './figures.ts'
import { runLoad } from './load.ts'
import { messageBody } from './message.ts'
import type { BenchOptions } from './options.ts'
import { bytesOf } from './sternpost-system.ts'
import { FROM, startSternpost, type Sternpost } from './sternpost.ts'
import { threadCpuSeconds } from './process-figures.ts'
import { startSink } from './sink.ts'
import { readProfiles, type Thread, type ThreadProfile } from './stages.ts'
import { WARM_UP } from './whole-way.ts'

export interface ProfileFigures {
  messages: number
  /** Milliseconds of CPU for a message. */
  stages: Record<string, number>
  threads: Record<string, number>
  /** The functions that cost most, by thread, with microseconds for a message. */
  functions: Record<Thread, { name: string; microseconds: number }[]>
}

/** As Linux calls the threads. */
const NAMES: Record<Thread, readonly string[]> = {
  main: ['MainThread'],
  store: ['store'],
  delivery: ['WorkerThread', 'delivery'],
}
const THREAD_POOL = 'libuv-worker'
const PROFILER = 'v8:ProfEvntProc'
const INTERVAL_MICROSECONDS = 500
const MOST_FUNCTIONS = 20
const DEADLINE = 300_000

export async function measureProfile({ clients, messages }: BenchOptions): Promise<ProfileFigures> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-bench-profile-'))
  const port = await freePort()
  const flags = `--cpu-prof --cpu-prof-interval=${INTERVAL_MICROSECONDS} --cpu-prof-dir=${folder}`
  const sternpost = await startSternpost({ deliveryPort: port, environment: { NODE_OPTIONS: flags } })
  const sink = await startSink('127.0.0.1', port)
  try {
    const run = async (count: number, inAll: number): Promise<void> => {
      await send(sternpost, clients, count)
      await sink.received(inAll, DEADLINE)
      await sternpost.check({ delivered: inAll })
      await sternpost.settled(inAll)
    }
    await run(WARM_UP, WARM_UP)
    const [before, from] = [threadCpuSeconds(sternpost.server.processId), monotonicMicroseconds()]
    await run(messages, WARM_UP + messages)
    const [after, to] = [threadCpuSeconds(sternpost.server.processId), monotonicMicroseconds()]
    // The profiles are written at the end.
    await sternpost.server.stop()
    const threads = Object.fromEntries(
      Object.entries(after)
        .filter(([name]) => name !== PROFILER)
        .map(([name, seconds]) => [name, threeDigits(((seconds - (before[name] ?? 0)) * 1_000) / messages)] as const)
        .filter(([, cpu]) => cpu > 0),
    )
    return divide(readProfiles(folder, { from, to }), threads, messages)
  } finally {
    await sink.stop()
    await sternpost.stop()
    rmSync(folder, { recursive: true, force: true })
  }
}

function monotonicMicroseconds(): number {
  return Number(process.hrtime.bigint() / 1_000n)
}

function divide(profiles: readonly ThreadProfile[], threads: Record<string, number>, messages: number): ProfileFigures {
  const stages: Record<string, number> = { DKIM: threads[THREAD_POOL] ?? 0, runtime: threads['V8Worker'] ?? 0 }
  const functions: ProfileFigures['functions'] = { main: [], store: [], delivery: [] }
  for (const thread of Object.keys(NAMES) as Thread[]) {
    const ofThread = profiles.filter((profile) => profile.thread === thread)
    const cpu = NAMES[thread].reduce((sum, name) => sum + (threads[name] ?? 0), 0)
    const byStage = sum(ofThread.map((profile) => profile.stages))
    const whole = [...byStage.values()].reduce((total, time) => total + time, 0)
    for (const [stage, time] of byStage) stages[stage] = (stages[stage] ?? 0) + (cpu * time) / whole
    functions[thread] = [...sum(ofThread.map((profile) => profile.functions))]
      .map(([name, time]) => ({ name, microseconds: threeDigits((cpu * 1_000 * time) / whole) }))
      .sort((left, right) => right.microseconds - left.microseconds)
      .slice(0, MOST_FUNCTIONS)
  }
  const rounded = Object.entries(stages).map(([stage, cpu]) => [stage, threeDigits(cpu)] as const)
  return {
    messages,
    stages: Object.fromEntries(rounded.toSorted(([, left], [, right]) => right - left)),
    threads,
    functions,
  }
}

function sum(maps: readonly ReadonlyMap<string, number>[]): Map<string, number> {
  const sums = new Map<string, number>()
  for (const map of maps) for (const [name, time] of map) sums.set(name, (sums.get(name) ?? 0) + time)
  return sums
}

function send({ server, key }: Sternpost, clients: number, messages: number): Promise<unknown> {
  return runLoad({
    baseUrl: server.baseUrl,
    apiKey: key,
    clients,
    messages,
    body: messageBody({ from: FROM, recipientDomain: 'dest.test', htmlBytes: bytesOf(10) }),
  })
}
