/**
 * Reads requests to send and renders previews (messages/README.md "Acceptance"): small ones at once, large ones in a
 * thread of its own, so that none of them keeps other requests waiting. Rejects with what `readRequest` and `readBatch`
 * throw, and with ServiceError `unavailable` when the thread dies.
 */
import { previewMessage, type MessagePreview, type PreviewInput } from '../../content/preview-message.ts'
import { readBatch, type CheckedBatch } from './check-batch.ts'
import { readRequest, type CheckedRequest } from './check-request.ts'
import type { RequestPolicy } from './check-shared-fields.ts'
import type { BatchRequest, SendRequest, SharedFields } from './send-request.ts'

export interface RequestReader {
  request(request: SendRequest, policy: RequestPolicy): Promise<CheckedRequest>
  batch(request: BatchRequest, policy: RequestPolicy, mostRecipients: number): Promise<CheckedBatch>
  preview(input: PreviewInput): Promise<MessagePreview>
}

/** What the thread does, by verb. */
export const LARGE_WORK = {
  request: ({ request, policy }: RequestWork) => readRequest(request, policy),
  batch: ({ request, policy, mostRecipients }: BatchWork) => readBatch(request, policy, mostRecipients),
  preview: (input: PreviewInput) => previewMessage(input),
}

interface RequestWork {
  request: SendRequest
  policy: RequestPolicy
}

interface BatchWork {
  request: BatchRequest
  policy: RequestPolicy
  mostRecipients: number
}

/** Asks the thread; what goes there and comes back is copied. */
export type CallLargeWork = (verb: keyof typeof LARGE_WORK, argument: unknown) => Promise<unknown>

/** What takes at most some milliseconds, whatever is in it: characters of texts, and those for each recipient. */
const MOST_CHARACTERS_HERE = 64 * 1024
const MOST_CHARACTERS_OF_BATCH_HERE = 1024 * 1024

export function createRequestReader(call: CallLargeWork): RequestReader {
  return {
    async request(request, policy) {
      if (charactersOf(request) <= MOST_CHARACTERS_HERE) return readRequest(request, policy)
      return (await call('request', { request, policy } satisfies RequestWork)) as CheckedRequest
    },
    async batch(request, policy, mostRecipients) {
      const characters = charactersOf(request)
      const isSmall = characters * (request.recipients?.length ?? 0) <= MOST_CHARACTERS_OF_BATCH_HERE
      if (isSmall && characters <= MOST_CHARACTERS_HERE) return readBatch(request, policy, mostRecipients)
      return (await call('batch', { request, policy, mostRecipients } satisfies BatchWork)) as CheckedBatch
    },
    async preview(input) {
      const { html, text, attachments, raw } = input.content
      const bytes = attachments.reduce((sum, attachment) => sum + attachment.bytes.length, raw?.length ?? 0)
      const size = bytes + (html?.length ?? 0) + (text?.length ?? 0)
      return size <= MOST_CHARACTERS_HERE ? previewMessage(input) : ((await call('preview', input)) as MessagePreview)
    },
  }
}

function charactersOf({ subject = '', html = '', text = '', attachments }: SharedFields): number {
  return attachments.reduce((sum, { content = '' }) => sum + content.length, subject.length + html.length + text.length)
}
