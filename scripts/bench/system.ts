/**
 * What is compared: a mail system that takes messages, signs them or not, and relays them to one port on loopback.
 *
 * A run's clock goes from the first hand-over until the sink has every message. Systems stay up between runs, so that
 * they take turns on a machine where nothing else works.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { startSink, type Sink } from './sink.ts'
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
  /** It runs in a virtual machine that optimizes what runs often: it is slow at first. */
  readonly comesToSpeed: boolean
  /** Resolves when every message was handed over. */
  handOver(load: Load): Promise<void>
  /** Name to process whose tree is accounted; evaluated before and after a run. */
  processes(): Record<string, number>
  /** Waits until it has nothing more to do for what it took; left out: a moment is enough. */
  settle?(): Promise<void>
  /** Looks at what it left behind; throws when something is missing. */
  check?(): Promise<void>
  stop(): Promise<void>
}

export type Start = (setting: Setting) => Promise<System>

export interface RunFigures {
  perSecond: number
  /**
   * Milliseconds of CPU for a message, by process: of the system until it has nothing more to do for the run; of the
   * sink and of the bench itself, with smtp-source, until the sink has all.
   */
  cpuMilliseconds: Record<string, number>
}

const RUN_DEADLINE = 300_000
/** What is then left to do, in the system, the kernel and elsewhere, is done; nothing of it is in the next run. */
const QUIET = 1_000

export async function measureRun(system: System, load: Load, sinkPort: number): Promise<RunFigures> {
  const sink = await startSink('127.0.0.1', sinkPort)
  try {
    const [systemBefore, toolsBefore] = [cpuOf(system), cpuOfTools(sink)]
    const startedAt = performance.now()
    await system.handOver(load)
    await sink.received(load.messages, RUN_DEADLINE)
    const seconds = (performance.now() - startedAt) / 1_000
    const toolsAfter = cpuOfTools(sink)
    await system.settle?.()
    await sleep(QUIET)
    const before = { ...systemBefore, ...toolsBefore }
    const after = { ...cpuOf(system), ...toolsAfter }
    await system.check?.()
    const cpuMilliseconds = Object.fromEntries(
      Object.entries(after).map(([name, cpu]) => [name, ((cpu - (before[name] ?? 0)) * 1_000) / load.messages]),
    )
    return { perSecond: load.messages / seconds, cpuMilliseconds }
  } finally {
    await sink.stop()
  }
}

/** Seconds so far, by process. */
function cpuOf(system: System): Record<string, number> {
  return Object.fromEntries(
    Object.entries(system.processes()).map(([name, processId]) => [name, treeCpuSeconds(processId)]),
  )
}

function cpuOfTools(sink: Sink): Record<string, number> {
  // Of the bench and of the children it has waited for so far, such as smtp-source.
  return { sink: cpuSeconds(sink.processId), 'load and check': ownAndEnded(process.pid) }
}
