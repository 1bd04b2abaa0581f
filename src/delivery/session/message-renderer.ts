/**
 * Makes the signed bytes and the envelope of one message inside a delivery thread. What it reads of the store is kept
 * for a short time: messages of a batch share their content, prepared once, a domain's messages its keys. Rejects when
 * something is missing or the sending domain's key does not open; an unsigned message never leaves the host.
 * content/README.md "Headers" and "Tracking" and "Rendering and DKIM".
 */
import { LRUCache } from 'lru-cache'
import { MINUTE, SECOND } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { memoryOf } from '../../base/threads/thread-channel.ts'
import { createKeyRing, type KeyRing } from '../../base/key-ring.ts'
import { renderKeys, type RenderSettings } from '../../content/message-fields.ts'
import { createSigner, type Signer } from '../../content/mime/dkim.ts'
import { downgradeMail } from '../../content/mime/encode-anew.ts'
import { isAscii } from '../../content/mime/encode-header.ts'
import { prepareContent, type PreparedContent } from '../../content/prepare-content.ts'
import { composeUnsigned, renderMessage } from '../../content/render-message.ts'
import type { RenderFacts, StoredContent } from '../../mail/message.ts'
import { returnPathAddress } from '../../mail/message-token.ts'
import type { ContentReader, SealedSigningKey } from '../../store/content-reader.ts'
import type { DispatchedRow } from '../protocol/try-result.ts'
import { createLargeRoom } from './large-messages.ts'
import type { SmtpEnvelope } from './smtp-extensions.ts'

export interface RenderedMessage {
  envelope: SmtpEnvelope
  bytes: Buffer
  /** See `createMessageBody`. */
  provenFrom?: number | undefined
  /** Called when nobody needs it any more: what it took of the room for large messages is free again. */
  onGone?: () => void
}

/** What the host takes: a submitted mail may have bytes beyond US-ASCII, all others have none. */
export type MessageForm = '8bit' | '7bit'

export type RendererSettings = Omit<RenderSettings, 'keys'> & SenderSettings

interface MessageRendererOptions extends RendererSettings {
  reader: ContentReader
  masterKey: Uint8Array
  /** Of large messages that are in memory at once. */
  largeBytes: number
}

const MOST_SENDERS = 5_000
/**
 * A rotated key signs after this at the latest, and so does that of a domain which was removed and added anew: its
 * owner may take the old record away at once.
 */
const SENDER_LIFETIME = SECOND
/** The content of a few batches under way. */
const CONTENTS_BYTES = 64 * 2 ** 20
/** Contents that were used once: one that is used again is kept, those of single messages only pass through. */
const MOST_USED_ONCE = 1_000
/** Of what is read ahead, for the rows of one dispatch. */
const AHEAD_BYTES = 4 * 2 ** 20
/** A content that several messages share, behind the last of them. */
const SHARED_FOR = MINUTE
/** More than one piece of a stored content: such a content has memory of its own (store/content-reader.ts). */
const LEAST_FREED_BYTES = 2 * 2 ** 20
/** Smaller messages count for nothing. */
const LARGE_BYTES = 2 ** 20
/** A message, of its content: base64 with its line ends, and the header. */
const RENDERED_SHARE = 1.4
const NOTHING = new Uint8Array(0)
const NO_MEMORY: readonly ArrayBuffer[] = []
const EMPTY_LINE = '\r\n\r\n'
/** Beside what is stored, the pieces it is made of are kept, and these as they are sent. */
const PREPARED_SHARE = 4

export function createMessageRenderer(options: MessageRendererOptions) {
  const { reader, masterKey, largeBytes, trackingUrl, trackingHost, platformDomain, ...headers } = options
  const keyRing = createKeyRing(masterKey)
  const bounceKey = keyRing.key('bounce')
  const settings: RenderSettings = { ...headers, keys: renderKeys(keyRing) }
  const senderOf = createKnownSenders(reader, keyRing, { trackingUrl, trackingHost, platformDomain })
  const known = createKnownContents(reader)
  const takeRoom = createLargeRoom(largeBytes)

  async function compose(row: DispatchedRow, form: MessageForm): Promise<RenderedMessage> {
    const { content: stored, isShared } = await known.contentOf(row.contentId)
    const facts = await known.factsOf(row.key)
    const sender = await senderOf(row.domain)
    if (stored === undefined || facts === undefined) throw new Error(`no content for message ${row.messageId}`)
    const content = form === '7bit' ? downgraded(stored) : stored
    const { returnPath, messageId } = row
    const input = { ...sender, content, facts, returnPath, settings }
    const isUnsigned = sender.signers.length === 0
    if (isUnsigned && !row.isCaptured) throw new Error(`no signing key for ${row.domain}`)
    const from = returnPathAddress(messageId, returnPath, bounceKey)
    const to = facts.to.address
    const envelopeId = from.slice(0, from.indexOf('@'))
    const needsUtf8 = content.needsUtf8 || !isAscii(to)
    const envelope = { from, to, envelopeId, needsUtf8, is8Bit: content.is8Bit }
    const bytes = isUnsigned ? composeUnsigned(input).then((composed) => composed.bytes) : renderMessage(input)
    return rendered(bytes, { envelope, isProven: isProven(content), large: isShared ? NO_MEMORY : largeMemory(stored) })
  }

  return {
    /** These rows come soon: what they need is read at once. Never rejects. */
    readAhead: known.readAhead,
    /** Nothing is kept for this row any more: it is reported, and was perhaps never rendered. */
    forget: known.forget,
    async render(row: DispatchedRow, form: MessageForm): Promise<RenderedMessage> {
      await known.reading()
      const size = await known.sizeOf(row.contentId)
      if (size < LARGE_BYTES) return compose(row, form)
      const onGone = await takeRoom(size * RENDERED_SHARE, row.recipientDomain)
      if (onGone === null) throw new ServiceError('unavailable', 'too many large messages at once')
      try {
        return { ...(await compose(row, form)), onGone }
      } catch (thrown) {
        onGone()
        throw thrown
      }
    },
  }
}

/** Contents and facts of messages: those that were read ahead, and contents that several messages share. */
function createKnownContents(reader: ContentReader) {
  const contents = new LRUCache<number, PreparedContent>({
    maxSize: CONTENTS_BYTES,
    sizeCalculation: sizeOf,
    ttl: SHARED_FOR,
    updateAgeOnGet: true,
  })
  const usedOnce = new LRUCache<number, true>({ max: MOST_USED_ONCE })
  /** Of rows that are not reported yet; null: not read yet, or taken. */
  const factsAhead = new Map<number, RenderFacts | null>()
  const contentsAhead = new LRUCache<number, StoredContent>({ maxSize: CONTENTS_BYTES, sizeCalculation: sizeOfStored })
  let reading = Promise.resolve()

  async function read(rows: readonly DispatchedRow[]): Promise<void> {
    const unknown = new Set<number>()
    contents.purgeStale()
    for (const { key, contentId } of rows) {
      factsAhead.set(key, null)
      if (unknown.has(contentId)) usedOnce.set(contentId, true)
      if (!contents.has(contentId) && !contentsAhead.has(contentId)) unknown.add(contentId)
    }
    try {
      const keys = rows.map(({ key }) => key)
      const found = await reader.readAhead(keys, unknown, AHEAD_BYTES)
      for (const { key, contentId } of rows.filter(({ key }) => factsAhead.has(key))) {
        factsAhead.set(key, found.facts.get(key) ?? null)
        const stored = found.contents.get(contentId)
        if (stored !== undefined) contentsAhead.set(contentId, stored)
      }
    } catch {
      // Each is read by itself when its turn comes, and says then what is wrong.
    }
  }

  return {
    reading: () => reading,
    readAhead(rows: readonly DispatchedRow[]): Promise<void> {
      reading = read(rows)
      return reading
    },
    /** Of its stored bytes, without reading them. */
    async sizeOf(contentId: number): Promise<number> {
      const stored = contents.peek(contentId)?.stored ?? contentsAhead.peek(contentId)
      return stored === undefined ? reader.contentSize(contentId) : sizeOfStored(stored)
    },
    /** `isShared`: others may get the same one. */
    async contentOf(contentId: number): Promise<{ content: PreparedContent | undefined; isShared: boolean }> {
      const known = contents.get(contentId)
      if (known !== undefined) return { content: known, isShared: true }
      const ahead = contentsAhead.get(contentId)
      // Nobody else gets it.
      contentsAhead.delete(contentId)
      const stored = ahead ?? (await reader.content(contentId))
      if (stored === undefined) return { content: undefined, isShared: false }
      // Another message of the batch may have read it meanwhile.
      const isShared = usedOnce.has(contentId) || contents.has(contentId)
      const content = contents.get(contentId) ?? prepareContent(stored, isShared)
      if (isShared) contents.set(contentId, content)
      usedOnce.set(contentId, true)
      return { content, isShared }
    },
    async factsOf(key: number): Promise<RenderFacts | undefined> {
      const known = factsAhead.get(key) ?? undefined
      if (known !== undefined) factsAhead.set(key, null)
      return known ?? reader.renderFacts(key)
    },
    forget({ key, contentId }: DispatchedRow): void {
      factsAhead.delete(key)
      contentsAhead.delete(contentId)
    },
  }
}

/** It holds nothing of the content while the signature is made: its texts would be copied with each collection. */
async function rendered(
  signing: Promise<Buffer>,
  { envelope, isProven, large }: { envelope: SmtpEnvelope; isProven: boolean; large: readonly ArrayBuffer[] },
): Promise<RenderedMessage> {
  const bytes = await signing
  for (const memory of large) memory.transfer(0)
  return { envelope, bytes, provenFrom: isProven ? bytes.indexOf(EMPTY_LINE) : bytes.length }
}

/** The bytes of a large content are in one block; of a smaller one the memory may be that of others, too. */
function largeMemory({ stored }: PreparedContent): readonly ArrayBuffer[] {
  if (sizeOfStored(stored) < LEAST_FREED_BYTES) return NO_MEMORY
  return memoryOf([...stored.attachments.map(({ bytes }) => bytes), stored.raw ?? NOTHING])
}

/** The texts that we encoded have no line end but CRLF, and no line that begins with a dot. */
const isProven = ({ submitted, stored }: PreparedContent): boolean =>
  submitted === null && stored.attachments.length === 0

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

interface SenderSettings {
  /** Scheme and host of all tracked links, without a slash at the end; null: https and a tracking host. */
  trackingUrl: string | null
  /** For domains without one of their own. */
  trackingHost: string
  /** A sending domain of the operator that signs all mail too, for feedback loops; null: none. */
  platformDomain: string | null
}

/** What is known of a sending domain; without signers its mail never leaves the host. */
type KnownSender = { signers: Signer[]; trackingBaseUrl: string }

/**
 * Sending domains as a delivery thread knows them, read from the store's read-only view and kept for a second. Rejects
 * when the key of the domain does not open; the platform's key is left out then.
 */
function createKnownSenders(reader: ContentReader, keyRing: KeyRing, settings: SenderSettings) {
  const { trackingUrl, trackingHost, platformDomain } = settings
  const senders = new LRUCache<string, Promise<KnownSender>>({ max: MOST_SENDERS, ttl: SENDER_LIFETIME })
  const opened = new LRUCache<string, { sealed: Uint8Array; signer: Signer }>({ max: 2 * MOST_SENDERS })

  async function read(domain: string): Promise<KnownSender> {
    const [keys, platformKey, ownHost] = await Promise.all([
      reader.signingKeys(domain),
      platformDomain === null ? undefined : reader.platformKey(platformDomain),
      reader.trackingHost(domain),
    ])
    const [own] = keys
    // The platform's signature never stands alone, nor twice: its own mail has it already. It is a single one: beside
    // two of the sending domain OpenDKIM looks at no more.
    const further = own === undefined || own.domain === platformDomain ? [] : openable(platformKey)
    const trackingBaseUrl = trackingUrl ?? `https://${ownHost ?? trackingHost}`
    return { signers: [...keys.map(signerOf), ...further], trackingBaseUrl }
  }

  /** Opening and parsing a key costs more than signing with it: the same one is opened once. */
  function signerOf({ domain, selector, sealedPrivateKey: sealed }: SealedSigningKey): Signer {
    const name = `dkim ${domain} ${selector}`
    const known = opened.get(name)
    if (known !== undefined && Buffer.compare(known.sealed, sealed) === 0) return known.signer
    const signer = createSigner({ domain, selector, privateKeyPem: keyRing.open(sealed, name) })
    opened.set(name, { sealed, signer })
    return signer
  }

  /** Nobody's mail waits for the platform's key: the start of the server tells of one that does not open. */
  function openable(key: SealedSigningKey | undefined): Signer[] {
    try {
      return key === undefined ? [] : [signerOf(key)]
    } catch {
      return []
    }
  }

  /** The promise is kept, so that many rows at once read the domain once; a failure is not kept. */
  return (domain: string): Promise<KnownSender> => {
    const known = senders.get(domain)
    if (known !== undefined) return known
    const reading = read(domain)
    senders.set(domain, reading)
    reading.catch(() => senders.delete(domain))
    return reading
  }
}
