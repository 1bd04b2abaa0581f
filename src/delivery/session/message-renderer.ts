/**
 * Makes the signed bytes and the envelope of one message inside a delivery thread.
 *
 * Content, signing keys and tracking host are read from the store's read-only view and kept for a short time: messages
 * of a batch share their content, prepared once, a domain's messages its keys. Rejects when something is missing or the
 * sending domain's key does not open; an unsigned message never leaves the host. content/README.md "Headers" and
 * "Tracking" and "Rendering and DKIM".
 */
import { LRUCache } from 'lru-cache'
import { createKeyRing } from '../../base/key-ring.ts'
import { isAscii } from '../../content/mime/encode-header.ts'
import { renderKeys, type RenderSettings } from '../../content/message-fields.ts'
import { prepareContent, type PreparedContent } from '../../content/prepare-content.ts'
import { composeUnsigned, renderMessage } from '../../content/render-message.ts'
import type { RenderFacts, StoredContent } from '../../mail/message.ts'
import { returnPathAddress } from '../../mail/message-token.ts'
import type { ContentReader } from '../../store/content-reader.ts'
import { downgradeMail } from './downgrade-8bit.ts'
import { createKnownSenders, type SenderSettings } from './known-senders.ts'
import type { SmtpEnvelope } from './smtp-extensions.ts'
import type { DispatchedRow } from '../protocol/try-result.ts'

export interface RenderedMessage {
  envelope: SmtpEnvelope
  bytes: Buffer
  /** See `createMessageBody`. */
  provenFrom?: number | undefined
}

/** What the host takes: a submitted mail may have bytes beyond US-ASCII, all others have none. */
export type MessageForm = '8bit' | '7bit'

export type RendererSettings = Omit<RenderSettings, 'keys'> & SenderSettings

interface MessageRendererOptions extends RendererSettings {
  reader: ContentReader
  masterKey: Uint8Array
}

/** The content of a few batches under way. */
const CONTENTS_BYTES = 64 * 2 ** 20
/** Contents that were used once: one that is used again is kept, those of single messages only pass through. */
const MOST_USED_ONCE = 1_000
/** Of what is read ahead, for the rows of one dispatch. */
const AHEAD_BYTES = 4 * 2 ** 20
/** Rows that were read ahead; rows of a thread are fewer by far, but for those that never come to be rendered. */
const MOST_AHEAD = 5_000
const EMPTY_LINE = '\r\n\r\n'
/** Beside what is stored, the pieces it is made of are kept, and these as they are sent. */
const PREPARED_SHARE = 4

interface MessageRenderer {
  /** These rows come soon: what they need is read at once. Never rejects. */
  readAhead(rows: readonly DispatchedRow[]): Promise<void>
  render(row: DispatchedRow, form: MessageForm): Promise<RenderedMessage>
}

export function createMessageRenderer(options: MessageRendererOptions): MessageRenderer {
  const { reader, masterKey, trackingUrl, trackingHost, platformDomain, ...headers } = options
  const keyRing = createKeyRing(masterKey)
  const bounceKey = keyRing.key('bounce')
  const settings: RenderSettings = { ...headers, keys: renderKeys(keyRing) }
  const senderOf = createKnownSenders({ reader, keyRing, trackingUrl, trackingHost, platformDomain })
  const known = createKnownContents(reader)

  return {
    readAhead: known.readAhead,
    async render(row, form) {
      await known.reading()
      const stored = await known.contentOf(row.contentId)
      const facts = await known.factsOf(row.key)
      const sender = await senderOf(row.domain)
      if (stored === undefined || facts === undefined) throw new Error(`no content for message ${row.messageId}`)
      const content = form === '7bit' ? downgraded(stored) : stored
      const { returnPath, messageId } = row
      const input = { ...sender, content, facts, returnPath, settings }
      const isUnsigned = sender.signers.length === 0
      if (isUnsigned && !row.isCaptured) throw new Error(`no signing key for ${row.domain}`)
      const bytes = isUnsigned ? (await composeUnsigned(input)).bytes : await renderMessage(input)
      const from = returnPathAddress(messageId, returnPath, bounceKey)
      const to = facts.to.address
      const envelope = {
        from,
        to,
        envelopeId: from.slice(0, from.indexOf('@')),
        needsUtf8: content.needsUtf8 || !isAscii(to),
        is8Bit: content.is8Bit,
      }
      return { envelope, bytes, provenFrom: provenFrom(content, bytes) }
    },
  }
}

/** Contents and facts of messages: those that were read ahead, and contents that several messages share. */
function createKnownContents(reader: ContentReader) {
  const contents = new LRUCache<number, PreparedContent>({ maxSize: CONTENTS_BYTES, sizeCalculation: sizeOf })
  const usedOnce = new LRUCache<number, true>({ max: MOST_USED_ONCE })
  const factsAhead = new LRUCache<number, RenderFacts>({ max: MOST_AHEAD })
  const contentsAhead = new LRUCache<number, StoredContent>({ maxSize: CONTENTS_BYTES, sizeCalculation: sizeOfStored })
  let reading = Promise.resolve()

  async function read(rows: readonly DispatchedRow[]): Promise<void> {
    const unknown = new Set<number>()
    for (const { contentId } of rows) {
      if (unknown.has(contentId)) usedOnce.set(contentId, true)
      if (!contents.has(contentId) && !contentsAhead.has(contentId)) unknown.add(contentId)
    }
    try {
      const keys = rows.map(({ key }) => key)
      const found = await reader.readAhead(keys, unknown, AHEAD_BYTES)
      for (const [key, facts] of found.facts) factsAhead.set(key, facts)
      for (const [contentId, stored] of found.contents) contentsAhead.set(contentId, stored)
    } catch {
      // Each is read by itself when its turn comes, and says then what is wrong.
    }
  }

  return {
    /** What is read ahead now. */
    reading: () => reading,
    readAhead(rows: readonly DispatchedRow[]): Promise<void> {
      reading = read(rows)
      return reading
    },
    async contentOf(contentId: number): Promise<PreparedContent | undefined> {
      const known = contents.get(contentId)
      if (known !== undefined) return known
      const stored = contentsAhead.get(contentId) ?? (await reader.content(contentId))
      if (stored === undefined) return undefined
      // Another message of the batch may have been quicker.
      const isShared = usedOnce.has(contentId)
      const content = contents.get(contentId) ?? prepareContent(stored, isShared)
      if (isShared) contents.set(contentId, content)
      usedOnce.set(contentId, true)
      contentsAhead.delete(contentId)
      return content
    },
    async factsOf(key: number): Promise<RenderFacts | undefined> {
      const known = factsAhead.get(key)
      factsAhead.delete(key)
      return known ?? reader.renderFacts(key)
    },
  }
}

/** The texts that we encoded have no line end but CRLF, and no line that begins with a dot. */
function provenFrom({ submitted, stored }: PreparedContent, bytes: Buffer): number {
  const isOurs = submitted === null && stored.attachments.length === 0
  return isOurs ? bytes.indexOf(EMPTY_LINE) : bytes.length
}

/** Before signing, so that the signature is over what is sent. */
function downgraded(content: PreparedContent): PreparedContent {
  const { submitted } = content
  if (submitted === null) return content
  return { ...content, is8Bit: false, submitted: (html) => downgradeMail(submitted(html)) }
}

function sizeOf({ stored }: PreparedContent): number {
  return PREPARED_SHARE * sizeOfStored(stored)
}

function sizeOfStored({ html, text, subject, attachments, raw }: StoredContent): number {
  const texts = (html?.length ?? 0) + (text?.length ?? 0) + subject.length + (raw?.length ?? 0)
  return attachments.reduce((sum, { bytes }) => sum + bytes.length, texts + 1)
}
