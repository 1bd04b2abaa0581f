/** Entry of the thread that reads large request bodies. What it throws is the caller's answer. */
import { parentPort, type MessagePort } from 'node:worker_threads'
import { answerThreadChannel } from '../../base/threads/thread-channel.ts'
import { canonicalDigest, readJson, type LargeBody } from './read-json.ts'

function serveBodies(port: MessagePort): void {
  answerThreadChannel(port, (calls) => {
    for (const { argument, resolve, reject } of calls) {
      try {
        const { bytes, needsDigest } = argument as LargeBody
        const document = readJson(bytes)
        resolve(needsDigest ? { ...document, digest: canonicalDigest(document.value) } : document)
      } catch (thrown) {
        reject(thrown)
      }
    }
  })
}

if (parentPort !== null) serveBodies(parentPort)
