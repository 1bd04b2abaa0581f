/**
 * Reads contents, render facts and signing keys in a delivery thread, over a connection of its own that never waits: the
 * thread speaks SMTP meanwhile. Rejects with ServiceError `unavailable` while the server does not answer.
 */
import { ServiceError } from '../../base/errors.ts'
import type { RenderFacts, StoredContent } from '../../mail/message.ts'
import type { ContentReader, SealedSigningKey } from '../content-reader.ts'
import type { ContentRow } from '../records/packed-content.ts'
import type { PostgresLocation } from '../store-location.ts'
import { TRACKING_HOST_QUERY } from '../verbs/domains/domain-rows.ts'
import { byRank, PLATFORM_KEYS_QUERY, SIGNING_KEYS_QUERY } from '../verbs/domains/signing-keys.ts'
import { FACTS_QUERY, factsOf, type FactsRow } from '../verbs/messages/render-facts.ts'
import {
  CONTENT_QUERY,
  contentFrom,
  firstPartKey,
  partKeys,
  PARTS_QUERY,
  sizeOfContent,
} from '../verbs/messages/stored-content.ts'
import { toPostgres } from './dialect.ts'
import { keepConnected } from './kept-connection.ts'
import { mergedForm } from './merged-statements.ts'
import { namedRows } from './postgres-database.ts'
import type { WireStatement } from './wire-messages.ts'

/** Some hundred of them in one answer are no burden. */
const MOST_SHORT_BYTES = 32 * 1_024

export async function openPostgresContentReader({ url }: PostgresLocation): Promise<ContentReader> {
  const line = keepConnected({ url, line: 'read', name: 'sternpost' })

  async function find<Row>(statement: WireStatement): Promise<Row[]> {
    const found = await line.ask({ session: null, lastCommit: null, isPatient: false, statements: [statement] })
    if (found.kind === 'done') return found.answers.flatMap((answer) => namedRows<Row>(answer))
    throw new ServiceError('unavailable', 'the database does not answer', { cause: new Error(found.message) })
  }

  /** Rows of each, in one statement. */
  async function findOfEach<Row>(question: Question, each: readonly unknown[][]): Promise<Row[][]> {
    if (each.length <= 1) return Promise.all(each.map((values) => find<Row>(question.one(...values))))
    const found = each.map((): Row[] => [])
    for (const row of await find<Row & { place: number }>(question.many(each))) found[row.place - 1]?.push(row)
    return found
  }
  async function readFacts(keys: readonly number[]): Promise<Map<number, RenderFacts>> {
    const asked = keys.map((key) => [key])
    const found = await findOfEach<FactsRow>(FACTS, asked)
    return new Map(keys.flatMap((key, index) => (found[index] ?? []).map((row) => [key, factsOf(row)] as const)))
  }
  /** Their rows first, with what is short: they tell how much is to come. */
  async function readContents(ids: readonly number[], mostBytes: number): Promise<Map<number, StoredContent>> {
    const asked = ids.map((id) => [id, firstPartKey(id)])
    const found = await findOfEach<ContentRow & { texts: string | null }>(SHORT_CONTENT, asked)
    const contents = new Map<number, StoredContent>()
    const keep = (id: number, row: ContentRow, parts: Buffer[]): void => {
      const content = contentFrom(row, parts)
      if (content !== undefined) contents.set(id, content)
    }
    const others: { id: number; row: ContentRow }[] = []
    let bytes = 0
    for (const [index, [row]] of found.entries()) {
      if (row === undefined || bytes >= mostBytes) continue
      bytes += sizeOfContent(row)
      const id = ids[index] ?? 0
      if (row.texts === null) others.push({ id, row })
      else keep(id, row, [Buffer.from(row.texts)])
    }
    const parts = await findOfEach<{ bytes: Buffer }>(
      PARTS,
      others.map(({ id }) => partKeys(id)),
    )
    for (const [index, { id, row }] of others.entries()) keep(id, row, parts[index]?.map((part) => part.bytes) ?? [])
    return contents
  }

  return {
    async readAhead(messageKeys, contentIds, mostBytes) {
      const [facts, contents] = await Promise.all([readFacts(messageKeys), readContents([...contentIds], mostBytes)])
      return { facts, contents }
    },
    content: async (id) => (await readContents([id], Infinity)).get(id),
    contentSize: async (id) => (await find<ContentRow>(CONTENT.one(id))).map(sizeOfContent)[0] ?? 0,
    renderFacts: async (key) => (await readFacts([key])).get(key),
    signingKeys: async (domain) => (await find<SealedSigningKey>(SIGNING_KEYS.one(domain, domain))).sort(byRank),
    platformKey: async (domain) => (await find<SealedSigningKey>(PLATFORM_KEYS.one(domain))).sort(byRank)[0],
    async trackingHost(domain) {
      const [row] = await find<{ tracking_domain: string | null }>(TRACKING_HOST.one(domain, domain))
      return row?.tracking_domain ?? null
    },
    close: line.close,
  }
}

type Question = ReturnType<typeof question>

/** `types`: of its parameters, where it is asked for many at once; `order`: of the rows of each. */
function question(name: string, sql: string, types: readonly string[] = [], order = '') {
  const { text } = toPostgres(sql, () => undefined)
  const merged = mergedForm(text)?.text(types) ?? text
  return {
    one: (...values: unknown[]): WireStatement => ({ name, text, values }),
    many: (each: readonly unknown[][]): WireStatement => ({
      name: `${name}_of_each`,
      text: `${merged} ${order}`,
      values: types.map((_, column) => each.map((values) => values[column])),
    }),
  }
}

/** The same with the bytes of a content, null: they are more than a few texts. As text they cost half of what bytes do. */
const SHORT_CONTENT_QUERY = `
  select content.*, short.texts
  from (${CONTENT_QUERY}) as content
  left join lateral (
    select convert_from(bytes, 'UTF8') as texts
    from content_parts
    where part_key = ? and content.rawBytes is null and content.attachments is null
      and coalesce(content.htmlBytes, 0) + coalesce(content.textBytes, 0) <= ${MOST_SHORT_BYTES}
  ) as short on true`

const FACTS = question('facts', FACTS_QUERY, ['bigint'])
const CONTENT = question('content', CONTENT_QUERY)
const SHORT_CONTENT = question('short_content', SHORT_CONTENT_QUERY, ['bigint', 'bigint'])
const PARTS = question('parts', PARTS_QUERY, ['bigint', 'bigint'], 'order by found.part_key')
const SIGNING_KEYS = question('signing_keys', SIGNING_KEYS_QUERY)
const PLATFORM_KEYS = question('platform_keys', PLATFORM_KEYS_QUERY)
const TRACKING_HOST = question('tracking_host', TRACKING_HOST_QUERY)
