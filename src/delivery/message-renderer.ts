/**
 * Makes the signed bytes and the envelope of one message inside a delivery thread.
 *
 * Content and signing keys are read from the store's read-only view and kept for a short time: messages of a batch
 * share their content, a domain's messages its keys. Rejects when something is missing or the key does not open; an
 * unsigned message never leaves. Engine.md 16.2, 18.
 */
import { LRUCache } from 'lru-cache'
import { SECOND } from '../base/clock.ts'
import { createKeyRing } from '../base/key-ring.ts'
import { createSigner } from '../content/dkim.ts'
import type { Signer } from '../content/dkim.ts'
import { renderMessage } from '../content/render-message.ts'
import type { StoredContent } from '../mail/message.ts'
import { returnPathAddress } from '../mail/return-path.ts'
import type { ContentReader, SealedSigningKey } from '../store/content-reader.ts'
import type { RenderedMessage } from './deliver-message.ts'
import type { DispatchedRow } from './try-result.ts'

export interface MessageRendererOptions {
  reader: ContentReader
  masterKey: Uint8Array
  /** Header that carries the complaint token, or null for none. */
  referenceHeader: string | null
  senderId: string
}

interface OpenedKey {
  sealed: Uint8Array
  signer: Signer
}

const MOST_SIGNING_DOMAINS = 5_000
/**
 * A rotated key signs after this at the latest, and so does that of a domain which was removed and added anew: its
 * owner may take the old record away at once.
 */
const KEYS_LIFETIME = SECOND
/** The content of a few batches under way; single messages only pass through. */
const CONTENTS_BYTES = 64 * 2 ** 20

export type RenderRow = (row: DispatchedRow) => Promise<RenderedMessage>

export function createMessageRenderer(options: MessageRendererOptions): RenderRow {
  const { reader, referenceHeader, senderId } = options
  const keyRing = createKeyRing(options.masterKey)
  const bounceKey = keyRing.key('bounce')
  const tokenKeys = { complaint: keyRing.key('complaint') }
  const signers = new LRUCache<string, Promise<Signer[]>>({ max: MOST_SIGNING_DOMAINS, ttl: KEYS_LIFETIME })
  const opened = new LRUCache<string, OpenedKey>({ max: 2 * MOST_SIGNING_DOMAINS })
  const contents = new LRUCache<number, StoredContent>({ maxSize: CONTENTS_BYTES, sizeCalculation: sizeOf })

  const openSigners = async (domain: string): Promise<Signer[]> => {
    const keys = await reader.signingKeys(domain)
    if (keys.length === 0) throw new Error(`no signing key for ${domain}`)
    return keys.map(signerOf)
  }

  /** Opening and parsing a key costs more than signing with it: the same one is opened once. */
  const signerOf = ({ domain, selector, sealedPrivateKey: sealed }: SealedSigningKey): Signer => {
    const name = `dkim ${domain} ${selector}`
    const known = opened.get(name)
    if (known !== undefined && Buffer.compare(known.sealed, sealed) === 0) return known.signer
    const signer = createSigner({ domain, selector, privateKeyPem: keyRing.open(sealed, name) })
    opened.set(name, { sealed, signer })
    return signer
  }

  /** The promise is kept, so that many rows at once open the keys once; a failure is not kept. */
  const signersOf = (domain: string): Promise<Signer[]> => {
    const known = signers.get(domain)
    if (known !== undefined) return known
    const opening = openSigners(domain)
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
    const [content, facts, signersOfDomain] = await Promise.all([
      contentOf(row.contentId),
      reader.renderFacts(row.key),
      signersOf(row.domain),
    ])
    if (content === undefined || facts === undefined) throw new Error(`no content for message ${row.messageId}`)
    const bytes = await renderMessage({
      content, facts, tokenKeys, signers: signersOfDomain, referenceHeader, senderId,
    })
    const from = returnPathAddress(row.messageId, row.returnPath, bounceKey)
    return { envelope: { from, to: facts.to.address, envelopeId: from.slice(0, from.indexOf('@')) }, bytes }
  }
}

function sizeOf({ html, text, subject, attachments }: StoredContent): number {
  const texts = (html?.length ?? 0) + (text?.length ?? 0) + subject.length
  return attachments.reduce((sum, { bytes }) => sum + bytes.length, texts + 1)
}
