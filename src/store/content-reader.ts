/**
 * Reading stored content inside a delivery thread: a read-only view beside the store's one writer.
 *
 * Sees everything that was committed. Resolves with undefined for what is not there.
 */
import type { RenderFacts, StoredContent } from '../mail/message.ts'
import type { DkimAlgorithm } from './records/sender-records.ts'

export interface SealedSigningKey {
  domain: string
  selector: string
  algorithm: DkimAlgorithm
  /** See DkimKeyRecord.sealedPrivateKey. */
  sealedPrivateKey: Uint8Array
}

/** What many messages need, by message key and by content id; what is not there is left out. */
export interface ReadAhead {
  facts: Map<number, RenderFacts>
  contents: Map<number, StoredContent>
}

export interface ContentReader {
  /** All at one moment, for much less than one by one. Contents behind `mostBytes` of them are left out. */
  readAhead(messageKeys: readonly number[], contentIds: Iterable<number>, mostBytes: number): Promise<ReadAhead>
  /** Attachments and raw of more than 2 MiB together are in one block that nobody else has. */
  content(contentId: number): Promise<StoredContent | undefined>
  /** Bytes of its texts, attachments and raw; 0 when it is not there. */
  contentSize(contentId: number): Promise<number>
  renderFacts(messageKey: number): Promise<RenderFacts | undefined>
  /**
   * The active keys of this sending domain, RSA before Ed25519: of the living one once it was verified, else of the one
   * removed last, whose mail may still wait. Empty when there never was one.
   */
  signingKeys(domain: string): Promise<SealedSigningKey[]>
  /** The first of them of a domain that signs others' mail too: none unless it is here and may send now. */
  platformKey(domain: string): Promise<SealedSigningKey | undefined>
  /** The domain's own host of tracked links once a check found its record right, of that row; null: the server's. */
  trackingHost(domain: string): Promise<string | null>
  close(): Promise<void>
}
