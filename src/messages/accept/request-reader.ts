/**
 * Reads requests to send, renders previews and finds links (messages/README.md "Acceptance"): small ones at once, large
 * ones in a thread of its own, so that none of them keeps other requests waiting. Rejects with what `readRequest` and
 * `readBatch` throw, and with ServiceError `unavailable` when the thread dies.
 */
import { memoryOf } from '../../base/threads/thread-channel.ts'
import type { Link } from '../../content/html/link-target.ts'
import { linksIn } from '../../content/kept-links.ts'
import { previewMessage, type MessagePreview, type PreviewInput } from '../../content/preview-message.ts'
import type { LinkHtml } from '../../store/records/engagement-records.ts'
import { readBatch, type CheckedBatch } from './check-batch.ts'
import { readRequest, type CheckedRequest } from './check-request.ts'
import type { CheckedMail, RequestPolicy } from './check-shared-fields.ts'
import type { BatchRequest, SendRequest, SharedFields } from './send-request.ts'

export interface RequestReader {
  request(request: SendRequest, policy: RequestPolicy): Promise<CheckedRequest>
  batch(request: BatchRequest, policy: RequestPolicy, mostRecipients: number): Promise<CheckedBatch>
  preview(input: PreviewInput): Promise<MessagePreview>
  /** As `linksIn`; the memory of a large mail is given away. */
  links(stored: LinkHtml, hasVariables: boolean): Promise<readonly Link[]>
}

/** What the thread does, by verb. */
export const LARGE_WORK = {
  request: ({ request, policy }: RequestWork) => withMemory(readRequest(request, policy)),
  batch: ({ request, policy, mostRecipients }: BatchWork) => withMemory(readBatch(request, policy, mostRecipients)),
  preview: async (input: PreviewInput) => ({ value: await previewMessage(input), moved: [] }),
  links: ({ stored, hasVariables }: LinksWork) => ({ value: linksIn(stored, hasVariables), moved: [] }),
}

/** Of the thread; `moved`: what of its memory is the caller's from then on. */
export interface LargeAnswer {
  value: unknown
  moved: readonly ArrayBuffer[]
}

/** The caller has the texts, and they are as they were. */
function withMemory(value: CheckedRequest | CheckedBatch): LargeAnswer {
  const moved = memoryOf(value.mail.attachments.map(({ bytes }) => bytes))
  return { value: withTexts(value, { html: undefined, text: undefined }), moved }
}

function withTexts<Checked extends { mail: CheckedMail }>(
  checked: Checked,
  { html, text }: Pick<SharedFields, 'html' | 'text'>,
): Checked {
  const content = { ...checked.mail.content, html: html ?? null, text: text ?? null }
  return { ...checked, mail: { ...checked.mail, content } }
}

interface RequestWork {
  request: SendRequest
  policy: RequestPolicy
}

interface LinksWork {
  stored: LinkHtml
  hasVariables: boolean
}

interface BatchWork {
  request: BatchRequest
  policy: RequestPolicy
  mostRecipients: number
}

/** Asks the thread; what goes there and comes back is copied, but for the memory that is moved. */
export type CallLargeWork = (
  verb: keyof typeof LARGE_WORK,
  argument: unknown,
  moved: readonly ArrayBuffer[],
) => Promise<unknown>

/** Characters that escaping makes of one: `&quot;`. */
const LONGEST_ENTITY = 6
/** What takes at most some milliseconds, whatever is in it: characters of texts, and those for each recipient. */
const MOST_CHARACTERS_HERE = 64 * 1024
const MOST_CHARACTERS_OF_BATCH_HERE = 1024 * 1024

export function createRequestReader(call: CallLargeWork): RequestReader {
  return {
    async request(request, policy) {
      if (charactersOf(request) <= MOST_CHARACTERS_HERE) return readRequest(request, policy)
      const work: RequestWork = { request, policy }
      return withTexts((await call('request', work, decodedMemory(request))) as CheckedRequest, request)
    },
    async batch(request, policy, mostRecipients) {
      const characters = charactersOf(request)
      const isSmall = characters * (request.recipients?.length ?? 0) <= MOST_CHARACTERS_OF_BATCH_HERE
      if (isSmall && characters <= MOST_CHARACTERS_HERE) return readBatch(request, policy, mostRecipients)
      const work: BatchWork = { request, policy, mostRecipients }
      return withTexts((await call('batch', work, decodedMemory(request))) as CheckedBatch, request)
    },
    async preview(input) {
      const { html, text, attachments, raw } = input.content
      const blocks = attachments.map(({ bytes }) => bytes)
      if (raw !== null) blocks.push(raw)
      const bytes = blocks.reduce((sum, block) => sum + block.length, 0)
      const size = bytes + filledLength(html ?? '', input) + filledLength(text ?? '', input)
      if (size <= MOST_CHARACTERS_HERE) return previewMessage(input)
      return (await call('preview', input, memoryOf(blocks))) as MessagePreview
    },
    async links(stored, hasVariables) {
      const { html, raw } = stored
      if ((html?.length ?? 0) + (raw?.length ?? 0) <= MOST_CHARACTERS_HERE) return linksIn(stored, hasVariables)
      const work: LinksWork = { stored, hasVariables }
      return (await call('links', work, raw === null ? [] : memoryOf([raw]))) as readonly Link[]
    },
  }
}

/** With its placeholders filled in a text has at most so many characters. */
function filledLength(text: string, { facts }: PreviewInput): number {
  const longest = Object.values(facts.variables).reduce<number>(
    (most, value) => Math.max(most, String(value).length),
    0,
  )
  return text.length + (text.split('{{').length - 1) * longest * LONGEST_ENTITY
}

/** What is decoded already costs nothing. */
function charactersOf({ subject = '', html = '', text = '', attachments }: SharedFields): number {
  const contents = attachments.map(({ content }) => (typeof content === 'string' ? content.length : 0))
  return contents.reduce((sum, length) => sum + length, subject.length + html.length + text.length)
}

function decodedMemory({ attachments }: SharedFields): ArrayBuffer[] {
  return memoryOf(
    attachments.flatMap(({ content }) => (typeof content === 'object' && 'bytes' in content ? [content.bytes] : [])),
  )
}
