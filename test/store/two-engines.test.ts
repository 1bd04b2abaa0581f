/**
 * The same random verbs on both engines: the same answers, and the same rows in the end. A number that differs between
 * the engines (rows, identifiers that a verb makes) is compared by its order.
 */
import Sqlite from 'better-sqlite3'
import pg from 'pg'
import t from 'tap'
import type { ClaimedMessage } from '../../src/store/records/claim-records.ts'
import type { QueueKey } from '../../src/store/records/queue-records.ts'
import type { Store } from '../../src/store/store.ts'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { randomSource, type RandomSource } from '../support/random-source.ts'
import { postgresLocation } from './postgres-support.ts'
import { freshLocation, openTestStore } from './sqlite-support.ts'
import {
  acceptRequest,
  bounced,
  deferredUntil,
  delivered,
  LEASE,
  newMessage,
  NOW,
  outcomeRecord,
  sampleContent,
  webhookEndpoint,
} from './store-samples.ts'

const STEPS = process.env['TEST_SCALE'] === 'full' ? 10_000 : 200
const SEED = Number(process.env['SEED'] ?? Date.now() % 1_000_000)
const KEY: QueueKey = { pool: 'default', route: 'mx', domain: 'acme.com', stream: 'transactional', isRetry: false }
const ENDS = { machineAfterDelivery: 0 }

/** One engine with what it said of the messages. */
interface Side {
  store: Store
  epoch: number
  held: Map<string, ClaimedMessage>
}

/** What both do; the answer is compared. */
type Step = (side: Side) => Promise<unknown>

t.setTimeout(3_600_000)

t.test('random verbs', { skip: skipWithoutPostgres }, async (t) => {
  const cluster = await startPostgres(t)
  const url = cluster.url(await cluster.createDatabase())
  const location = freshLocation(t)
  const stores = [(await openTestStore(location)).store, (await openTestStore(postgresLocation(url))).store]
  const sides: Side[] = stores.map((store) => ({ store, epoch: 0, held: new Map() }))
  const random = randomSource(SEED)
  const story = createStory(random)
  const run = async (name: string, step: Step): Promise<boolean> => {
    const [left, right] = await Promise.all(
      sides.map((side) => step(side).then(plain, (thrown: Error) => ({ rejected: thrown.name }))),
    )
    return t.strictSame(right, left, name, { seed: SEED })
  }
  await run('begin', async (side) => {
    side.epoch = (await side.store.beginEpoch(NOW, NOW)).epoch
    for (const number of [1, 2]) await side.store.addWebhookEndpoint(endpoint(number))
  })
  for (let count = 0; count < STEPS; count += 1) {
    const [name, step] = story.next()
    if (!(await run(`${count} ${name}`, step))) break
  }
  for (const { store } of sides) await store.close()
  const file = new Sqlite(`${location.folder}/sternpost.db`, { readonly: true })
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const tables = file.prepare<[], string>(`select name from sqlite_master where type = 'table'`).pluck().all()
  for (const table of tables.filter((name) => !/^(?:subjects|sqlite)/.test(name))) {
    const left = file.prepare<[], Record<string, unknown>>(`select * from ${table}`).all()
    const { rows } = await client.query<Record<string, unknown>>(`select * from ${table}`)
    t.strictSame(comparable(table, rows), comparable(table, left), `rows of ${table}`, { seed: SEED })
  }
  await client.end()
  file.close()
})

const endpoint = (number: number) =>
  webhookEndpoint({
    id: `wh_${String(number).padStart(26, '0')}`,
    events: number === 1 ? ['*'] : ['email.delivered', 'email.bounced'],
    include: number === 1 ? [] : ['tags', 'ip'],
  })

/** Steps of random verbs; `now` goes on with each. */
function createStory(random: RandomSource) {
  let now = NOW
  const ids: string[] = []
  const addresses = Array.from({ length: 12 }, (_, index) => `user${index}@${index % 3 === 0 ? 'b' : 'a'}.example`)
  const pick = random.oneOf
  const accept = (): Step => {
    const address = pick(addresses)
    const messages = Array.from({ length: random.integer(4) + 1 }, () =>
      newMessage({
        to: { name: null, address },
        recipientDomain: address.split('@')[1] ?? '',
        expiresAt: now + 1_000 * (random.integer(200) + 1),
        variables: random.integer(2) === 0 ? {} : { name: 'Ada' },
      }),
    )
    ids.push(...messages.map(({ id }) => id))
    const content = { ...sampleContent, subject: `Order ${random.integer(5)}`, tags: { kind: pick(['a', 'b']) } }
    const entry = { apiKeyId: null, key: `key ${random.integer(40)}`, fingerprint: Buffer.alloc(32, random.integer(2)) }
    const idempotency = random.integer(3) === 0 ? { entry, answer: { status: 200, body: '{}' } } : null
    const request = acceptRequest({ now, content, messages, idempotency })
    return ({ store }) => store.acceptMessages(request)
  }
  const claim = (isRetry: boolean): Step => {
    const [limit, at] = [random.integer(8) + 1, now]
    return async ({ store, epoch, held }) => {
      const asks = [{ key: { ...KEY, isRetry }, limit }]
      const { messages, earliestAt } = await store.claimDue({ now: at, epoch, leaseUntil: at + LEASE, asks })
      for (const message of messages) held.set(message.id, message)
      return { ids: messages.map(({ id }) => id), messages: messages.map(({ claim }) => claim), earliestAt }
    }
  }
  /** Rows that both hold, in the order of their identifiers. */
  const some = ({ held }: Side, share: number): ClaimedMessage[] =>
    [...held.values()].toSorted((left, right) => (left.id < right.id ? -1 : 1)).filter((_, at) => at % share === 0)
  const outcomes = (): Step => {
    const [share, kind, at] = [random.integer(3) + 1, random.integer(4), now]
    const outcome = [delivered, bounced, deferredUntil(at + 1_000 * random.integer(30)), delivered][kind] ?? delivered
    return async (side) => {
      const rows = some(side, share)
      const records = rows.map((row) => ({ ...outcomeRecord(row, outcome, { at }), suppresses: kind === 1 }))
      await side.store.recordOutcomes({ epoch: side.epoch, now: at, outcomes: records })
      for (const { id } of rows) side.held.delete(id)
      return rows.map(({ id }) => id)
    }
  }
  const webhooks = (): Step => {
    const [at, isGood] = [now, random.integer(3) > 0]
    return async ({ store, epoch }) => {
      const claimed = await store.claimWebhooks({
        now: at,
        epoch,
        leaseUntil: at + 60_000,
        limit: 9,
        perEndpoint: 6,
        busy: {},
      })
      const results = claimed.map(({ key, id }) => ({
        key,
        id,
        at,
        durationMilliseconds: 5,
        status: isGood ? 200 : 500,
        error: null,
        answer: '',
        endedAt: at,
        next: isGood ? ({ kind: 'succeeded' } as const) : ({ kind: 'retry', at: at + 5_000 } as const),
      }))
      const told = await store.recordWebhookResults({ epoch, results, disableAfter: null })
      return { kinds: claimed.map(({ kind, endpointId, attempts }) => ({ kind, endpointId, attempts })), told }
    }
  }
  const engagement = (): Step => {
    const hits = Array.from({ length: random.integer(4) + 1 }, () => ({
      messageId: pick(ids),
      link: random.integer(2) === 0 ? null : { number: random.integer(3), url: 'https://acme.com/' },
      at: now,
      isMachine: random.integer(4) === 0,
      client: null,
    }))
    const at = now
    return ({ store }) => store.recordEngagement({ now: at, hits, ...ENDS })
  }
  const search = (): Step => {
    const nothing = { recipient: null, batchId: null, tag: null, subject: null, from: null, state: null }
    const asked = pick([
      { recipient: pick(addresses) },
      { tag: { key: 'kind', value: 'a' } },
      { subject: 'order 3' },
      { state: 'delivered' as const },
      {},
    ])
    const others = { isp: null, ip: null, since: null, until: null, now, limit: 7, after: null }
    const reach = { isTest: null, domains: [] }
    return async ({ store }) => {
      await store.indexSubjects(200)
      const found = await store.searchMessages({ ...nothing, ...others, reach, ...asked })
      return { ids: found.messages.map(({ id }) => id), isMore: found.next !== null }
    }
  }
  const at = (): number => now
  const steps: [string, number, () => Step][] = [
    ['accept', 8, accept],
    ['claim', 5, () => claim(false)],
    ['claim retries', 2, () => claim(true)],
    ['outcomes', 6, outcomes],
    ['webhooks', 5, webhooks],
    ['engagement', 2, engagement],
    ['search', 2, search],
    [
      'route',
      2,
      () =>
        ({ store }) =>
          store.assignRoutes([{ domain: pick(['a.example']), route: 'mx', isp: 'gmail' }]),
    ],
    [
      'mark',
      3,
      () => {
        const share = random.integer(3) + 1
        return async (side) => {
          const rows = some(side, share).map(({ key, claim }) => ({ key, claim }))
          return side.store.markDotSent(side.epoch, [...rows, { key: 1, claim: 0 }])
        }
      },
    ],
    [
      'unclaim',
      1,
      () => {
        const nextAt = at() + 10
        return async (side) => {
          const rows = some(side, 2).map(({ id, key, claim }) => ({ id, key, claim, nextAt }))
          await side.store.unclaim({ epoch: side.epoch, rows })
          for (const { id } of rows) side.held.delete(id)
        }
      },
    ],
    [
      'expire',
      2,
      () =>
        (
          (time) =>
          ({ store }: Side) =>
            store.expireDue(time, 20)
        )(at()),
    ],
    [
      'cancel',
      1,
      () =>
        (
          (id, time) =>
          ({ store }: Side) =>
            store.cancelMessage(id, time)
        )(pick(ids), at()),
    ],
    [
      'look',
      3,
      () =>
        (
          (id, time) =>
          ({ store }: Side) =>
            store.lookupMessage(id, time)
        )(pick(ids), at()),
    ],
    [
      'events',
      1,
      () =>
        (
          (id) =>
          ({ store }: Side) =>
            store.messageEvents(id)
        )(pick(ids)),
    ],
    [
      'sum',
      2,
      () =>
        ({ store }) =>
          store.sumStatistics(50),
    ],
    [
      'summary',
      1,
      () =>
        (
          (time) =>
          ({ store }: Side) =>
            store.queueSummary(time)
        )(at()),
    ],
    [
      'health',
      1,
      () =>
        ({ store }) =>
          store.ipHealth('127.0.0.11', 0),
    ],
    [
      'forget',
      1,
      () => {
        const before = at() - 100_000
        return ({ store }) =>
          store
            .forgetMessages({ before, now: before, linksBefore: before, after: 0, limit: 40 })
            .then(({ removed }) => removed)
      },
    ],
    [
      'restart',
      1,
      () => {
        const time = at()
        return async (side) => {
          const { epoch, ...freed } = await side.store.beginEpoch(time, time + 500)
          side.epoch = epoch
          side.held.clear()
          return freed
        }
      },
    ],
  ]
  const weighted = steps.flatMap((step) => Array.from({ length: step[1] }, () => step))
  return {
    next(): [string, Step] {
      now += random.integer(3_000) + 1
      const [name, , make] = ids.length === 0 ? (['accept', 1, accept] as const) : pick(weighted)
      return [name, make()]
    },
  }
}

// Numbers of rows, and identifiers that a verb makes anew.
const NUMBERS = new Set(['key', 'contentId', 'position', 'next', 'newestAt'])
const MADE = /\b(?:evt|whd|sup|req)_[0-9a-z]{26}\b/g

/** What both must say alike. */
function plain(answer: unknown): unknown {
  const text = JSON.stringify(answer, (name, value: unknown) => (NUMBERS.has(name) ? undefined : value))
  return text === undefined ? undefined : (JSON.parse(text.replace(MADE, 'made')) as unknown)
}

const ROW_NUMBER = /(?:^seq|_seq|_id|^part_key)$/

/** Rows in an order of their own, with their numbers and identifiers left out. */
function comparable(table: string, rows: readonly Record<string, unknown>[]): string[] {
  return rows
    .filter((row) => row['name'] !== 'changes' && table !== 'last_commits')
    .map((row) =>
      Object.entries(row)
        .filter(([name, value]) => !ROW_NUMBER.test(name) && name !== 'is_retry' && !isCounter(table, row, value))
        .map(([name, value]) => `${name}=${shown(value)}`)
        .sort()
        .join(' '),
    )
    .sort()
}

/** Places up to which something was looked at are numbers of rows. */
const isCounter = (table: string, row: Record<string, unknown>, value: unknown): boolean =>
  table === 'meta' && row['name'] !== 'epoch' && typeof value !== 'undefined'

function shown(value: unknown): string {
  if (value instanceof Uint8Array) return value.length === 16 ? 'id' : Buffer.from(value).toString('hex')
  return String(value).replace(MADE, 'made')
}
