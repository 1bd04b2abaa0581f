/**
 * Entry of the thread that reads large request bodies and does what they ask for. What it throws is the caller's answer.
 *
 * Garbage is collected after what left much of it: a thread that has nothing to do does not collect, and would keep
 * hundreds of megabytes of the last bodies until the next one comes.
 */
import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { parentPort, type MessagePort } from 'node:worker_threads'
import { answerThreadChannel } from '../../base/threads/thread-channel.ts'
import { LARGE_WORK } from '../../messages/accept/request-reader.ts'
import { canonicalDigest, readJson, type JsonDocument, type LargeBody } from './read-json.ts'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void
/** Some ten more than the thread has without any garbage. */
const MUCH_BYTES = 40 * 1024 * 1024

function serveBodies(port: MessagePort): void {
  answerThreadChannel(port, (calls) => {
    for (const { verb, argument, resolve, reject } of calls) {
      answer(verb, argument)
        .then(resolve, reject)
        // After the answer, which is posted at the end of this turn.
        .finally(() => setImmediate(tidyUp))
    }
  })
}

function tidyUp(): void {
  const { used_heap_size: heap, external_memory: outside } = getHeapStatistics()
  if (heap + outside > MUCH_BYTES) collectGarbage()
}

async function answer(verb: string, argument: unknown): Promise<unknown> {
  if (!Object.hasOwn(LARGE_WORK, verb)) return readBody(argument as LargeBody)
  return LARGE_WORK[verb as keyof typeof LARGE_WORK](argument as never)
}

function readBody({ bytes, needsDigest }: LargeBody): JsonDocument {
  const document = readJson(bytes)
  return needsDigest ? { ...document, digest: canonicalDigest(document.value) } : document
}

if (parentPort !== null) serveBodies(parentPort)
