/**
 * Reads large JSON bodies, and what large requests ask for, in a thread of their own, one after the other, so that none
 * of them holds up other requests (http/README.md "Limits"). The thread starts with the first such body. When it dies,
 * the requests under way are answered 503 `unavailable`, and the next body starts another one.
 */
import { Worker } from 'node:worker_threads'
import { ServiceError } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import { createThreadChannel, memoryOf, type ThreadChannel } from '../../base/threads/thread-channel.ts'
import type { CallLargeWork } from '../../messages/accept/request-reader.ts'
import type { JsonDocument, LargeBody } from './read-json.ts'

export type BodyThread = ReturnType<typeof createBodyThread>

export function createBodyThread({ logger }: { logger: Logger }) {
  let running: { worker: Worker; channel: ThreadChannel } | undefined

  function start(): ThreadChannel {
    const worker = new Worker(new URL('./serve-bodies.ts', import.meta.url), { name: 'bodies', execArgv: [] })
    const channel = createThreadChannel(worker)
    worker.unref()
    worker.on('error', (error) => logger.error({ error: error.message }, 'the thread that reads large bodies died'))
    worker.on('exit', () => {
      if (running?.worker === worker) running = undefined
      channel.fail(new ServiceError('unavailable', 'the body could not be read', { headers: { 'Retry-After': '1' } }))
    })
    running = { worker, channel }
    return channel
  }

  const channel = (): ThreadChannel => running?.channel ?? start()
  const work: CallLargeWork = (verb, argument, moved) => channel().call(verb, argument, moved)

  return {
    work,
    /** As `readJson`, with the contents of attachments decoded; `bytes` are gone afterwards. */
    readJson(bytes: Buffer, needsDigest: boolean) {
      const body: LargeBody = { bytes, needsDigest }
      return channel().call('json', body, memoryOf([bytes])) as Promise<JsonDocument>
    },
    async stop() {
      await running?.worker.terminate()
    },
  }
}
