/**
 * The statistics against the rows they are made of: thirty simulated days of mixed mail, summed in slices at any time,
 * then each cell of each grouping recounted from the events by other means.
 */
import BetterSqlite3 from 'better-sqlite3'
import { join } from 'node:path'
import t from 'tap'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createStatistics } from '../../src/messages/statistics/statistics.ts'
import { STATISTICS_COUNTERS, type StatisticsDimension } from '../../src/store/records/statistics-records.ts'
import type { Store } from '../../src/store/store.ts'
import { claimMessages } from '../support/claim-messages.ts'
import { randomSource } from '../support/random-source.ts'
import { freshLocation, openTestStore } from './sqlite-support.ts'
import {
  acceptRequest,
  bounced,
  deferredUntil,
  delivered,
  LEASE,
  NOW,
  newMessage,
  outcomeRecord,
  sampleContent,
} from './store-samples.ts'

const DAYS = 30
const HOUR = 3_600_000
const DAY = 24 * HOUR
const A_DAY = process.env['TEST_SCALE'] === 'full' ? 3_400 : 100
const DOMAINS = ['acme.com', 'other.com']
const POOLS = ['default', 'bulk']
const IPS = ['127.0.0.11', '127.0.0.12']
const PROVIDERS = ['gmail', 'yahoo', 'other']
const EVERYTHING = { isTest: null, domains: [] }
const SPAN = { after: (NOW - DAY) / 1_000, before: (NOW + 60 * DAY) / 1_000 }
const clock = { now: () => NOW + 60 * DAY, after: () => () => undefined }

t.setTimeout(1_800_000)

t.test('thirty days, each cell as the events say', async (t) => {
  const random = randomSource(7)
  const location = freshLocation(t)
  const { store } = await openTestStore(location)
  const { epoch } = await store.beginEpoch(NOW, NOW)
  let accepted = 0
  for (let day = 0; day < DAYS; day++) {
    for (let hour = 0; hour < 24; hour += 6) {
      const now = NOW + day * DAY + hour * HOUR + random.integer(HOUR)
      accepted += await acceptSome(store, now, A_DAY / 4)
      await tryAll(store, epoch, now + 1_000)
      for (let slices = random.integer(3); slices > 0; slices--) await store.sumStatistics(1 + random.integer(300))
    }
  }
  while (await store.sumStatistics(1_000));
  t.equal(await store.sumStatistics(1_000), false)

  const rows = readRows(join(location.folder, 'sternpost.db'))
  for (const dimension of ['domain', 'tag', 'pool', 'ip', 'provider', null] as const) {
    for (const interval of ['hour', 'day'] as const) {
      for (const reach of [EVERYTHING, { isTest: true, domains: [] }, { isTest: false, domains: ['acme.com'] }]) {
        const asked = { dimension, interval, ...SPAN }
        const found = await createStatistics({ store, clock }).find(asked, reach)
        const seen = found.map(({ name, at, ...counts }) => [name === '' ? 'all' : name, at, counts])
        t.strictSame(
          seen,
          expected(rows, dimension, interval, reach),
          `${dimension} ${interval} ${JSON.stringify(reach)}`,
        )
      }
    }
  }
  t.comment(`${accepted} messages, ${rows.length} events`)

  const allOf = (of: Store) =>
    createStatistics({ store: of, clock }).find({ dimension: null, interval: 'day', ...SPAN }, EVERYTHING)
  const before = await allOf(store)
  await store.close()
  const again = await openTestStore(location)
  while (await again.store.sumStatistics(1_000));
  t.same(await allOf(again.store), before, 'a restart counts nothing twice')
  let removed = 0
  for (let part = -1; part !== 0; removed += part) part = await again.store.forgetStatistics(NOW + 10 * DAY, 50)
  t.ok(removed > 0)
  t.ok((await allOf(again.store)).every(({ at }) => at >= NOW + 9 * DAY))
  await again.store.close()

  async function acceptSome(store: Store, now: number, count: number): Promise<number> {
    for (let number = 0; number < count; number++) {
      const tags =
        random.integer(3) === 0 ? {} : { kind: random.oneOf(['order', 'news']), 'é:x': String(random.integer(2)) }
      const recipientDomain = random.oneOf(['a.example', 'bb.example', 'ccc.example'])
      const to = { name: null, address: `ada@${recipientDomain}` }
      const message = newMessage({ id: newIdentifier('msg', now), expiresAt: now + 3 * DAY, to, recipientDomain })
      await store.acceptMessages(
        acceptRequest({
          now,
          domain: random.oneOf(DOMAINS),
          isTest: random.integer(4) === 0,
          pool: random.oneOf(POOLS),
          content: { ...sampleContent, tags },
          messages: [message],
        }),
      )
      if (random.integer(20) === 0) await store.cancelMessage(message.id, now + 1)
    }
    return count
  }

  async function tryAll(store: Store, epoch: number, now: number): Promise<void> {
    for (;;) {
      const claimed = await claimMessages(store, { now, epoch, leaseUntil: now + LEASE, pools: POOLS, limit: 200 })
      if (claimed.length === 0) return
      const outcomes = claimed.map((message) => {
        const outcome = random.oneOf([delivered, delivered, bounced, deferredUntil(now + 5 * HOUR)])
        const record = outcomeRecord(message, outcome, { at: now, ip: random.oneOf(IPS) })
        return {
          ...record,
          isp: PROVIDERS[message.recipientDomain.length % PROVIDERS.length] ?? '',
          events: record.events.map((event) => ({ ...event, at: now })),
        }
      })
      await store.recordOutcomes({ epoch, now, outcomes })
      const hits = claimed.flatMap(({ id }) => {
        const hit = { messageId: id, link: null, at: now + HOUR, isMachine: random.integer(2) === 0, client: null }
        return random.integer(3) === 0
          ? [hit, { ...hit, link: { number: random.integer(2), url: 'https://a.example/' } }]
          : []
      })
      await store.recordEngagement({ now: now + HOUR, hits, machineAfterDelivery: 1_000 })
    }
  }
})

interface EventRow {
  seq: number
  message: number
  kind: string
  at: number
  body: string | null
  isTest: number
  domain: string
  pool: string
  provider: string | null
  tags: string | null
}

function readRows(folder: string): EventRow[] {
  const database = new BetterSqlite3(folder, { readonly: true })
  try {
    return database
      .prepare<[], EventRow>(
        `select events.event_seq as seq, events.message_seq as message, kind, at, body, is_test as isTest, lanes.domain,
          pools.name as pool, isp as provider, tags
        from events
        join messages on messages.seq = events.message_seq
        join contents on contents.content_id = messages.content_id
        join lanes on lanes.lane_id = messages.lane_id
        join pools on pools.pool_id = messages.pool_id
        order by event_seq`,
      )
      .all()
  } finally {
    database.close()
  }
}

type Cell = [name: string, at: number, counts: Record<string, number>]

/** By a plain walk over all events. */
function expected(
  rows: readonly EventRow[],
  dimension: StatisticsDimension | null,
  interval: 'hour' | 'day',
  reach: { isTest: boolean | null; domains: readonly string[] },
): Cell[] {
  const step = interval === 'hour' ? HOUR : DAY
  const cells = new Map<string, Cell>()
  const lastIp = new Map<number, string>()
  for (const row of rows) {
    const data = row.body === null ? {} : ((JSON.parse(row.body) as { data: Record<string, string> }).data ?? {})
    const isFirst = row.kind === 'email.attempted' && !lastIp.has(row.message)
    if (row.kind === 'email.attempted') lastIp.set(row.message, data['ip'] ?? '')
    if (reach.isTest !== null && reach.isTest !== (row.isTest === 1)) continue
    if (reach.domains.length > 0 && !reach.domains.includes(row.domain)) continue
    const isByAttempt = dimension === 'ip' || dimension === 'provider'
    const counter = counterOf(row.kind, data['machine'] === 'true', isByAttempt, isFirst)
    if (counter === undefined) continue
    for (const name of namesOf(row, dimension, lastIp.get(row.message))) {
      const at = Math.floor(row.at / step) * step
      const key = `${String(at).padStart(20)} ${name}`
      const empty = Object.fromEntries(STATISTICS_COUNTERS.map((each) => [each, 0]))
      const cell = cells.get(key) ?? [name, at, empty]
      cell[2][counter] = (cell[2][counter] ?? 0) + 1
      cells.set(key, cell)
    }
  }
  return [...cells.values()].sort(
    ([left, leftAt], [right, rightAt]) => leftAt - rightAt || Buffer.compare(Buffer.from(left), Buffer.from(right)),
  )
}

function counterOf(kind: string, isMachine: boolean, isByAttempt: boolean, isFirst: boolean): string | undefined {
  if (isByAttempt && kind === 'email.accepted') return undefined
  if (isByAttempt && isFirst) return 'accepted'
  const name = kind.slice('email.'.length)
  if (isMachine) return name === 'opened' ? 'machineOpened' : 'machineClicked'
  return STATISTICS_COUNTERS.find((each) => each === name)
}

function namesOf(row: EventRow, dimension: StatisticsDimension | null, ip: string | undefined): string[] {
  if (dimension === null) return ['all']
  if (dimension === 'tag')
    return Object.entries(JSON.parse(row.tags ?? '{}')).map(([name, value]) => `${name}:${value}`)
  const name = dimension === 'ip' ? ip : row[dimension]
  return name === undefined || name === null || name === '' ? [] : [name]
}
