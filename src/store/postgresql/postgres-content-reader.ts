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
import { CONTENT_QUERY, contentFrom, partKeys, PARTS_QUERY, sizeOfContent } from '../verbs/messages/stored-content.ts'
import { toPostgres } from './dialect.ts'
import { keepConnected } from './kept-connection.ts'
import { mergedForm } from './merged-statements.ts'
import { namedRows } from './postgres-database.ts'
import { rowsByPlace } from './statement-queue.ts'
import type { StatementAnswer, WireStatement } from './wire-messages.ts'

export async function openPostgresContentReader({ url }: PostgresLocation): Promise<ContentReader> {
  const line = keepConnected({ url, line: 'read', name: 'sternpost' })

  /** In one flight; answers in order. */
  async function ask(statements: WireStatement[]): Promise<StatementAnswer[]> {
    if (statements.length === 0) return []
    const answer = await line.ask({ ...ANY, statements })
    if (answer.kind === 'done') return answer.answers
    const cause = new Error(answer.message)
    throw new ServiceError('unavailable', 'the database does not answer', { cause })
  }
  async function find<Row>(statement: WireStatement): Promise<Row[]> {
    return (await ask([statement])).flatMap((answer) => namedRows<Row>(answer))
  }

  /** Of each, one row at most or its bytes in parts, in one statement. */
  async function askOfEach(question: Question, each: readonly unknown[][]): Promise<StatementAnswer[]> {
    if (each.length <= 1) return ask(each.map((values) => question.one(...values)))
    const [answer] = await ask([question.many(each)])
    if (answer === undefined) return []
    const fields = answer.fields.slice(1)
    return rowsByPlace(answer, each.length).map((rows) => ({ fields, rows, count: rows.length }))
  }
  async function readFacts(keys: readonly number[]): Promise<Map<number, RenderFacts>> {
    const answers = await askOfEach(
      FACTS,
      keys.map((key) => [key]),
    )
    const facts = new Map<number, RenderFacts>()
    for (const [index, answer] of answers.entries()) {
      const [row] = namedRows<FactsRow>(answer)
      if (row !== undefined) facts.set(keys[index] ?? 0, factsOf(row))
    }
    return facts
  }
  /** Their rows first: they tell how much is to come. */
  async function readContents(ids: readonly number[], mostBytes: number): Promise<Map<number, StoredContent>> {
    const answers = await askOfEach(
      CONTENT,
      ids.map((id) => [id]),
    )
    const chosen: { id: number; row: ContentRow }[] = []
    let bytes = 0
    for (const [index, answer] of answers.entries()) {
      const [row] = namedRows<ContentRow>(answer)
      if (row === undefined || bytes >= mostBytes) continue
      bytes += sizeOfContent(row)
      chosen.push({ id: ids[index] ?? 0, row })
    }
    const parts = await askOfEach(
      PARTS,
      chosen.map(({ id }) => partKeys(id)),
    )
    const contents = new Map<number, StoredContent>()
    for (const [index, { id, row }] of chosen.entries()) {
      const content = contentFrom(row, parts[index]?.rows.map(([piece]) => piece as Buffer) ?? [])
      if (content !== undefined) contents.set(id, content)
    }
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
      const [answer] = await ask([TRACKING_HOST.one(domain, domain)])
      return (answer?.rows[0]?.[0] as string | null | undefined) ?? null
    },
    close: line.close,
  }
}

const ANY = { session: null, lastCommit: null, isPatient: false }

type Question = ReturnType<typeof question>

/** `types`: of its parameters, where it is asked for many at once; `order`: of the rows of each. */
function question(name: string, sql: string, types: readonly string[] = [], order: readonly string[] = []) {
  const { text } = toPostgres(sql, () => undefined)
  const merged = mergedForm(text)?.text(types) ?? text
  return {
    one: (...values: unknown[]): WireStatement => ({ name, text, values }),
    many: (each: readonly unknown[][]): WireStatement => ({
      name: `${name}_of_each`,
      text: `${merged} order by ${['given.place', ...order].join(', ')}`,
      values: types.map((_, column) => each.map((values) => values[column])),
    }),
  }
}

const FACTS = question('facts', FACTS_QUERY, ['bigint'])
const CONTENT = question('content', CONTENT_QUERY, ['bigint'])
const PARTS = question('parts', PARTS_QUERY, ['bigint', 'bigint'], ['found.part_key'])
const SIGNING_KEYS = question('signing_keys', SIGNING_KEYS_QUERY)
const PLATFORM_KEYS = question('platform_keys', PLATFORM_KEYS_QUERY)
const TRACKING_HOST = question('tracking_host', TRACKING_HOST_QUERY)
