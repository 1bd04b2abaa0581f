/**
 * Reading stored content inside a delivery thread: a read-only view beside the store's one writer.
 *
 * Sees everything that was committed. Resolves with undefined for what is not there.
 */
import type { RenderFacts, StoredContent } from '../mail/message.ts'

export interface SealedSigningKey {
  domain: string
  selector: string
  /** See DomainRecord.sealedPrivateKey. */
  sealedPrivateKey: Uint8Array
}

export interface ContentReader {
  content(contentId: number): Promise<StoredContent | undefined>
  renderFacts(messageKey: number): Promise<RenderFacts | undefined>
  /** The key that signs for this sending domain. */
  signingKey(domain: string): Promise<SealedSigningKey | undefined>
  close(): Promise<void>
}
