/**
 * Makes the signed bytes and the envelope of one message inside a delivery thread.
 *
 * Content and signing keys are read from the store's read-only view and kept for a short time: messages of a batch
 * share their content, a domain's messages its key. Rejects when something is missing or the key does not open; an
 * unsigned message never leaves. Engine.md 16.2, 18.
 */
import { LRUCache } from 'lru-cache'
import { MINUTE } from '../base/clock.ts'
import { createKeyRing } from '../base/key-ring.ts'
import { createSigner } from '../content/dkim.ts'
import type { Signer } from '../content/dkim.ts'
import { renderMessage } from '../content/render-message.ts'
import type { StoredContent } from '../mail/message.ts'
import { returnPathAddress } from '../mail/return-path.ts'
import type { ContentReader } from '../store/content-reader.ts'
import type { RenderedMessage } from './deliver-message.ts'
import type { DispatchedRow } from './try-result.ts'

export interface MessageRendererOptions {
  reader: ContentReader
  masterKey: Uint8Array
  /** Header that carries the complaint token, or null for none. */
  referenceHeader: string | null
  senderId: string
}

const MOST_SIGNERS = 5_000
/** A rotated key signs after this at the latest. */
const SIGNER_LIFETIME = MINUTE
/** The content of a few batches under way; single messages only pass through. */
const CONTENTS_BYTES = 64 * 2 ** 20

export type RenderRow = (row: DispatchedRow) => Promise<RenderedMessage>

export function createMessageRenderer(options: MessageRendererOptions): RenderRow {
  const { reader, referenceHeader, senderId } = options
  const keyRing = createKeyRing(options.masterKey)
  const bounceKey = keyRing.key('bounce')
  const tokenKeys = { complaint: keyRing.key('complaint') }
  const signers = new LRUCache<string, Promise<Signer>>({ max: MOST_SIGNERS, ttl: SIGNER_LIFETIME })
  const contents = new LRUCache<number, StoredContent>({ maxSize: CONTENTS_BYTES, sizeCalculation: sizeOf })

  const openSigner = async (domain: string): Promise<Signer> => {
    const key = await reader.signingKey(domain)
    if (key === undefined) throw new Error(`no signing key for ${domain}`)
    const privateKeyPem = keyRing.open(key.sealedPrivateKey, `dkim ${key.domain} ${key.selector}`)
    return createSigner({ domain: key.domain, selector: key.selector, privateKeyPem })
  }

  /** The promise is kept, so that many rows at once open the key once; a failure is not kept. */
  const signerOf = (domain: string): Promise<Signer> => {
    const known = signers.get(domain)
    if (known !== undefined) return known
    const opening = openSigner(domain)
    signers.set(domain, opening)
    opening.catch(() => signers.delete(domain))
    return opening
  }
  const contentOf = async (contentId: number): Promise<StoredContent | undefined> => {
    const known = contents.get(contentId)
    if (known !== undefined) return known
    const content = await reader.content(contentId)
    if (content !== undefined) contents.set(contentId, content)
    return content
  }

  return async (row) => {
    const [content, facts, signer] = await Promise.all([
      contentOf(row.contentId),
      reader.renderFacts(row.key),
      signerOf(row.domain),
    ])
    if (content === undefined || facts === undefined) throw new Error(`no content for message ${row.messageId}`)
    const bytes = await renderMessage({ content, facts, tokenKeys, signer, referenceHeader, senderId })
    const from = returnPathAddress(row.messageId, row.returnPath, bounceKey)
    return { envelope: { from, to: facts.to.address, envelopeId: from.slice(0, from.indexOf('@')) }, bytes }
  }
}

function sizeOf({ html, text, subject, attachments }: StoredContent): number {
  const texts = (html?.length ?? 0) + (text?.length ?? 0) + subject.length
  return attachments.reduce((sum, { bytes }) => sum + bytes.length, texts + 1)
}
