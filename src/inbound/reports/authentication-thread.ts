/**
 * Reads DMARC and TLS reports in a thread of their own, one after the other: unpacking and parsing one may take a
 * second, and no body keeps a serving thread busy. The thread starts with the first report, has a hard limit of memory,
 * and is ended when a report takes longer than any honest one. Never rejects: what the thread did not survive is refused.
 */
import { Worker } from 'node:worker_threads'
import { SECOND } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { createThreadChannel, type ThreadChannel } from '../../base/threads/thread-channel.ts'
import { refused, type AuthenticationReading } from '../../mail/authentication/authentication-report.ts'

export type AuthenticationThread = ReturnType<typeof createAuthenticationThread>

/** Real reports of 10 MiB take a tenth of it on a slow machine. */
const MOST_MILLISECONDS = 10 * SECOND
const MEMORY = { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 8 }

export function createAuthenticationThread({ logger }: { logger: Logger }) {
  let running: { worker: Worker; channel: ThreadChannel } | undefined
  let before: Promise<unknown> = Promise.resolve()

  function start() {
    const entry = new URL('./serve-authentication.ts', import.meta.url)
    const worker = new Worker(entry, { name: 'authentication', execArgv: [], resourceLimits: MEMORY })
    const channel = createThreadChannel(worker)
    const started = { worker, channel }
    worker.unref()
    worker.on('error', (error) => logger.warn({ error: error.message }, 'the thread that reads DMARC reports died'))
    worker.on('exit', () => {
      if (running === started) running = undefined
      channel.fail(new Error('the thread has ended'))
    })
    running = started
    return started
  }

  async function readNow(mail: Uint8Array): Promise<AuthenticationReading> {
    const { worker, channel } = running ?? start()
    const timer = setTimeout(() => void worker.terminate(), MOST_MILLISECONDS)
    // A copy moves there: the mail itself may be read here, too.
    const bytes = new Uint8Array(mail)
    try {
      return (await channel.call('read', bytes, [bytes.buffer])) as AuthenticationReading
    } catch {
      return refused('reading the report took too much time or memory')
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    read(mail: Uint8Array): Promise<AuthenticationReading> {
      const reading = before.then(() => readNow(mail))
      before = reading
      return reading
    },
    async stop(): Promise<void> {
      await running?.worker.terminate()
    },
  }
}
