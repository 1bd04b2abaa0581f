/**
 * Entry of the thread that reads large request bodies and does what they ask for. What it throws is the caller's answer.
 * When none has come for a while, it keeps only the memory that it needs for itself.
 */
import { setImmediate } from 'node:timers/promises'
import { parentPort, type MessagePort } from 'node:worker_threads'
import { MOST_ATTACHMENTS } from '../../api/email.ts'
import { SECOND } from '../../base/clock.ts'
import { freeMemory } from '../../base/free-memory.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import { answerThreadChannel, memoryOf, type IncomingCall } from '../../base/threads/thread-channel.ts'
import { giveBackMemory, tidyUp } from '../../base/threads/tidy-up.ts'
import { decodeContent } from '../../messages/accept/check-attachments.ts'
import { LARGE_WORK, type LargeAnswer } from '../../messages/accept/request-reader.ts'
import { canonicalDigest, readJson, type JsonDocument, type LargeBody } from './read-json.ts'

/** Some ten more than the thread has without any garbage. */
const MUCH_BYTES = 24 * 1024 * 1024
const QUIET_FOR = 2 * SECOND

/** One call after the other, and what each left is collected before the next: several at once would add up. */
function serveBodies(port: MessagePort): void {
  let earlier = Promise.resolve()
  let quiet: NodeJS.Timeout | undefined
  answerThreadChannel(port, (calls) => {
    for (const call of calls) {
      earlier = earlier.then(async () => {
        clearTimeout(quiet)
        await serve(call)
        quiet = setTimeout(giveBackMemory, QUIET_FOR)
      })
    }
  })
}

async function serve({ verb, argument, resolve, reject }: IncomingCall): Promise<void> {
  await answer(verb, argument).then(({ value, moved }) => resolve(value, moved), reject)
  // The answer is posted at the end of this turn.
  await setImmediate()
  tidyUp(MUCH_BYTES)
}

async function answer(verb: string, argument: unknown): Promise<LargeAnswer> {
  if (!Object.hasOwn(LARGE_WORK, verb)) return readBody(argument as LargeBody)
  return LARGE_WORK[verb as keyof typeof LARGE_WORK](argument as never)
}

/** Attachments are most of what is large: they leave this thread as the bytes that are stored. */
function readBody({ bytes, needsDigest }: LargeBody): LargeAnswer {
  const document: JsonDocument = readJson(bytes, () => freeMemory(bytes))
  if (needsDigest) document.digest = canonicalDigest(document.value)
  document.contents = takeContents(document.value)
  const blocks = document.contents.flatMap((content) =>
    content !== undefined && 'bytes' in content ? [content.bytes] : [],
  )
  return { value: document, moved: memoryOf(blocks) }
}

function takeContents(document: unknown): NonNullable<JsonDocument['contents']> {
  const attachments = isPlainObject(document) && Object.hasOwn(document, 'attachments') ? document['attachments'] : []
  if (!Array.isArray(attachments)) return []
  // Then the whole request is refused.
  const areTooMany = attachments.length > MOST_ATTACHMENTS
  return attachments.map((attachment: unknown) => {
    const isGiven = isPlainObject(attachment) && Object.hasOwn(attachment, 'content')
    if (!isGiven || typeof attachment['content'] !== 'string') return undefined
    const decoded = areTooMany ? undefined : decodeContent(attachment['content'])
    attachment['content'] = ''
    return decoded
  })
}

if (parentPort !== null) serveBodies(parentPort)
