/** Reads contents, render facts and signing keys in a delivery thread, over a connection that cannot write. */
import type { StoredContent } from '../../mail/message.ts'
import type { ContentReader, ReadAhead, SealedSigningKey } from '../content-reader.ts'
import type { ContentRow } from '../records/packed-content.ts'
import type { SqliteLocation } from '../store-location.ts'
import { openReader } from './engine/database.ts'
import { createFindTrackingHost } from '../verbs/domains/domain-rows.ts'
import { byRank, PLATFORM_KEYS_QUERY, SIGNING_KEYS_QUERY } from '../verbs/domains/signing-keys.ts'
import { createFactsReader } from '../verbs/messages/render-facts.ts'
import { CONTENT_QUERY, createContentReader, sizeOfContent } from '../verbs/messages/stored-content.ts'

export async function openSqliteContentReader(location: SqliteLocation): Promise<ContentReader> {
  const database = openReader(location)
  const readContent = createContentReader(database)
  const findContent = database.prepare<[number], ContentRow>(CONTENT_QUERY)
  const findFacts = createFactsReader(database)
  const findKeys = database.prepare<[string, string], SealedSigningKey>(SIGNING_KEYS_QUERY)
  const findPlatformKeys = database.prepare<[string], SealedSigningKey>(PLATFORM_KEYS_QUERY)
  const findTrackingHost = createFindTrackingHost(database)
  // In one transaction: else each statement would find that the database has changed, and read its pages anew.
  const readTogether = database.transaction(
    (messageKeys: readonly number[], contentIds: Iterable<number>, mostBytes: number): ReadAhead => {
      const read: ReadAhead = { facts: new Map(), contents: new Map() }
      for (const key of messageKeys) {
        const facts = findFacts(key)
        if (facts !== undefined) read.facts.set(key, facts)
      }
      let bytes = 0
      for (const contentId of contentIds) {
        const content = readContent(contentId)
        if (content !== undefined) read.contents.set(contentId, content)
        bytes += content === undefined ? 0 : contentBytes(content)
        if (bytes >= mostBytes) break
      }
      return read
    },
  )
  return {
    readAhead: async (messageKeys, contentIds, mostBytes) => readTogether(messageKeys, contentIds, mostBytes),
    content: async (contentId) => readContent(contentId),
    async contentSize(contentId) {
      const row = findContent.get(contentId)
      return row === undefined ? 0 : sizeOfContent(row)
    },
    renderFacts: async (messageKey) => findFacts(messageKey),
    signingKeys: async (domain) => findKeys.all(domain, domain).sort(byRank),
    platformKey: async (domain) => findPlatformKeys.all(domain).sort(byRank)[0],
    trackingHost: async (domain) => findTrackingHost(domain),
    close: async () => void database.close(),
  }
}

/** About what it takes in memory. */
const contentBytes = ({ html, text, raw, attachments }: StoredContent): number =>
  attachments.reduce(
    (sum, { bytes }) => sum + bytes.length,
    (html?.length ?? 0) + (text?.length ?? 0) + (raw?.length ?? 0),
  )
