/**
 * What is compared: a mail system that takes messages, signs them or not, and relays them to one port on loopback.
 *
 * A run's clock goes from the first hand-over until the sink has every message. Systems stay up between runs, so that
 * they take turns on a machine where nothing else works.
 */
import type { Sink } from './sink.ts'
import { startSink } from './sink.ts'
import { cpuSeconds, ownAndEnded, treeCpuSeconds } from './process-figures.ts'

/** What every system relays to, and what it signs with. */
export interface Setting {
  sinkPort: number
  domain: string
  selector: string
  /** PKCS#8 PEM of an RSA key with 2,048 bits. */
  privateKeyPem: string
}

export interface Load {
  messages: number
  htmlBytes: number
}

export interface System {
  /** As in the document that is printed. */
  readonly name: string
  readonly isSigning: boolean
  /** Resolves when every message was handed over. */
  handOver(load: Load): Promise<void>
  /** Name to process whose tree is accounted; evaluated before and after a run. */
  processes(): Record<string, number>
  /** After a run: checks what it left behind, waits until nothing goes on any more. */
  afterRun(messages: number): Promise<void>
  stop(): Promise<void>
}

export type Start = (setting: Setting) => Promise<System>

export interface RunFigures {
  perSecond: number
  /** Milliseconds of CPU for a message, by process; `load and check` is the bench itself. */
  cpuMilliseconds: Record<string, number>
}

const RUN_DEADLINE = 300_000

export async function measureRun(system: System, load: Load, sinkPort: number): Promise<RunFigures> {
  const sink = await startSink('127.0.0.1', sinkPort)
  try {
    const before = accounting(system, sink)
    const startedAt = performance.now()
    await system.handOver(load)
    await sink.received(load.messages, RUN_DEADLINE)
    const seconds = (performance.now() - startedAt) / 1_000
    const after = accounting(system, sink)
    await system.afterRun(load.messages)
    const cpuMilliseconds = Object.fromEntries(Object.entries(after).map(([name, cpu]) => (
      [name, ((cpu - (before[name] ?? 0)) * 1_000) / load.messages])))
    return { perSecond: load.messages / seconds, cpuMilliseconds }
  } finally {
    await sink.stop()
  }
}

function accounting(system: System, sink: Sink): Record<string, number> {
  const trees = Object.entries(system.processes()).map(([name, processId]) => [name, treeCpuSeconds(processId)])
  // Of the bench and of the children it has waited for so far, such as smtp-source.
  const own = ownAndEnded(process.pid)
  return { ...Object.fromEntries(trees), sink: cpuSeconds(sink.processId), 'load and check': own }
}
