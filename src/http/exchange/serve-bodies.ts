/** Entry of the thread that reads large request bodies. What it throws is the caller's answer. */
import { parentPort, type MessagePort } from 'node:worker_threads'
import { answerThreadChannel } from '../../base/threads/thread-channel.ts'
import { canonicalDigest, readJson } from './read-json.ts'

function serveBodies(port: MessagePort): void {
  answerThreadChannel(port, (calls) => {
    for (const { argument, resolve, reject } of calls) {
      try {
        const document = readJson(argument as Uint8Array)
        resolve({ ...document, digest: canonicalDigest(document.value) })
      } catch (thrown) {
        reject(thrown)
      }
    }
  })
}

if (parentPort !== null) serveBodies(parentPort)
