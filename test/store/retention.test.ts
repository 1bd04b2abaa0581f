/**
 * Retention against a real database: what is over goes with everything about it, what is not final stays whatever its
 * age, links and lists live on, pages come back, and a budget takes the oldest first.
 */
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { DAY, HOUR, systemClock } from '../../src/base/clock.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { createLogger } from '../../src/base/logger.ts'
import { keptLinksText, linksIn } from '../../src/content/kept-links.ts'
import { renderKeys } from '../../src/content/message-fields.ts'
import { clickToken } from '../../src/mail/message-token.ts'
import { createFollowLink } from '../../src/messages/engagement/record-engagement.ts'
import type { NewMessage } from '../../src/store/records/accept-records.ts'
import { createRetention, type Retention, type RetentionTimes } from '../../src/store/retention.ts'
import type { WebhookResult } from '../../src/store/records/webhook-records.ts'
import { databasePath } from '../../src/store/sqlite/engine/database.ts'
import type { SqliteLocation } from '../../src/store/store-location.ts'
import type { ReportedFact } from '../../src/store/records/report-records.ts'
import type { Store } from '../../src/store/store.ts'
import { readerHere } from '../messages/acceptance-parts.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import {
  acceptRequest,
  bounced,
  claim,
  deferredUntil,
  delivered,
  newMessage,
  NOW,
  outcomeRecord,
  sampleContent,
  webhookEndpoint,
} from './store-samples.ts'

const TIMES: RetentionTimes = {
  content: 7 * DAY,
  messages: 90 * DAY,
  transcripts: 30 * DAY,
  linkTargets: 365 * DAY,
  webhooksSucceeded: 7 * DAY,
  webhooksFailed: 30 * DAY,
  unmatchedReports: 7 * DAY,
  statistics: 400 * DAY,
  audit: 400 * DAY,
  budget: null,
}
const HTML = '<p><a href="https://shop.test/a?x=1&amp;y=2">a</a> <a href="https://shop.test/{{path}}">b</a></p>'
const keys = renderKeys(createKeyRing(Buffer.alloc(32, 7)))

interface Scene {
  store: Store
  location: SqliteLocation
  retention: Retention
  epoch: number
  /** Time passes, and everything that is over goes. */
  pass(milliseconds: number): Promise<void>
  now(): number
  clock: ManualClock
  lines: Record<string, unknown>[]
  count(table: string): number
  /** What retention is told from now on: for how long the clock has been steady. */
  steadyFor(milliseconds: number): void
}

async function scene(t: Test, times: Partial<RetentionTimes> = {}): Promise<Scene> {
  const location = locationIn(t.testdir({}))
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const clock = manualClock(NOW)
  const lines: Record<string, unknown>[] = []
  let steadyFor = Infinity
  const logger = createLogger({ level: 'info', write: (line) => void lines.push(JSON.parse(line)) })
  const retention = createRetention({
    store,
    keptLinksText: async (html, hasVariables) => keptLinksText(linksIn(html, hasVariables)),
    clock,
    realClock: systemClock,
    isClockSteady: (since = 0) => steadyFor >= since,
    logger,
    times: () => ({ ...TIMES, ...times }),
  })
  const { epoch } = await store.beginEpoch(NOW, NOW)
  return {
    store,
    location,
    retention,
    epoch,
    lines,
    clock,
    now: () => clock.now(),
    steadyFor: (milliseconds) => void (steadyFor = milliseconds),
    async pass(milliseconds) {
      await clock.advance(milliseconds)
      await retention.run()
    },
    count(table) {
      const database = new Sqlite(databasePath(location), { readonly: true })
      const found = database.prepare<[], number>(`select count(*) from ${table}`).pluck().get() ?? 0
      database.close()
      return found
    },
  }
}

const tracked = {
  ...sampleContent,
  html: HTML,
  tracking: { opens: true, clicks: true },
  unsubscribe: { list: 'news', url: null },
}

async function accept(
  { store, now }: Scene,
  messages: NewMessage[],
  changes: Partial<Parameters<typeof acceptRequest>[0]> = {},
): Promise<void> {
  await store.acceptMessages(acceptRequest({ now: now(), content: tracked, messages, ...changes }))
}

const to = (changes: Partial<NewMessage> = {}): NewMessage =>
  newMessage({ variables: { path: 'b', name: 'Ada', number: 1 }, ...changes })

/** Takes what is due; its outcomes, each with a dialogue. */
async function deliver(scene: Scene, outcome = delivered): Promise<number> {
  const { store, epoch, now } = scene
  const rows = await claim(store, epoch, now(), 5_000)
  await store.recordOutcomes({
    epoch,
    now: now(),
    outcomes: rows.map((row) => ({ ...outcomeRecord(row, outcome, { at: now() }), transcript: '> EHLO\n< 250' })),
  })
  return rows.length
}

/** The webhook deliveries that are due have ended so. */
async function post({ store, epoch }: Scene, next: WebhookResult['next']): Promise<void> {
  const room = { limit: 9, perEndpoint: 9, busy: {} }
  const claimed = await store.claimWebhooks({ now: NOW, epoch, leaseUntil: NOW + HOUR, ...room })
  const ended = { at: NOW, endedAt: NOW, durationMilliseconds: 1, status: 200, error: null, answer: '', next }
  const results = claimed.map(({ key, id }) => ({ key, id, ...ended }))
  await store.recordWebhookResults({ epoch, disableAfter: null, results })
}

/** One more accepted and delivered message: the newest of each table stays for good. */
async function newest(scene: Scene): Promise<void> {
  await accept(scene, [to()])
  await deliver(scene)
}

const ALL = ['messages', 'message_data', 'contents', 'content_parts', 'attempts', 'transcripts', 'events'] as const

t.test('behind what a clock wrote that ran a year ahead, all goes as ever', async (t) => {
  const all = await scene(t)
  const { clock, pass, count } = all
  clock.set(NOW + 365 * DAY)
  await accept(all, [to({ expiresAt: clock.now() + DAY })])
  await deliver(all)
  clock.set(NOW)
  for (let old = 0; old < 3; old++) await newest(all)
  await pass(8 * DAY)
  t.equal(count('content_parts'), 1)
  await pass(23 * DAY)
  t.equal(count('transcripts'), 1)
  await pass(60 * DAY)
  t.same(['messages', 'contents', 'kept_links', 'traces'].map(count), [2, 4, 3, 2])
  await pass(365 * DAY)
  t.same(['messages', 'contents', 'kept_links', 'traces'].map(count), [1, 2, 1, 1], 'its link stays for its time')
})

t.test('content, dialogues, deliveries and messages go, each when its time is over', async (t) => {
  const all = await scene(t)
  const { store, pass, count } = all
  await store.addWebhookEndpoint(webhookEndpoint())
  await accept(all, [to(), to()], { content: { ...tracked, tags: { kind: 'order' } } })
  await deliver(all)
  await newest(all)
  t.same(ALL.map(count), [3, 3, 2, 2, 3, 3, 9])
  await post(all, { kind: 'succeeded' })

  await pass(7 * DAY - HOUR)
  t.same([...ALL, 'webhook_deliveries'].map(count), [3, 3, 2, 2, 3, 3, 9, 3])
  await pass(2 * HOUR)
  t.same([...ALL, 'webhook_deliveries', 'kept_links'].map(count), [3, 3, 2, 0, 3, 3, 9, 0, 2], 'bodies and deliveries')
  await pass(23 * DAY)
  t.same([...ALL].map(count), [3, 3, 2, 0, 3, 0, 9], 'dialogues')
  await pass(60 * DAY)
  t.same([...ALL, 'traces', 'content_tags'].map(count), [1, 1, 2, 0, 1, 0, 3, 2, 0], 'all of them but the newest')
  await pass(280 * DAY)
  t.same([...ALL, 'traces'].map(count), [1, 1, 1, 0, 1, 0, 3, 0], 'and at last what links needed')
  t.ok(all.lines.every(({ level }) => level === 'info'))
})

t.test('what is not final stays, whatever its age', async (t) => {
  const all = await scene(t, { content: HOUR, messages: HOUR, transcripts: HOUR, webhooksFailed: HOUR })
  const { store, pass, count } = all
  const later = NOW + 1_000 * DAY
  await accept(all, [to({ expiresAt: later + DAY })], { sendAt: later })
  const shared = [to({ expiresAt: later }), to({ expiresAt: later })]
  await accept(all, shared)
  const [first, second] = await claim(store, all.epoch, NOW, 9)
  if (first === undefined || second === undefined) throw new Error('two were due')
  await store.recordOutcomes({
    epoch: all.epoch,
    now: NOW,
    outcomes: [{ ...outcomeRecord(first, deferredUntil(later)), transcript: '> EHLO' }, outcomeRecord(second, bounced)],
  })
  await newest(all)
  await pass(500 * DAY)
  t.same([count('messages'), count('contents'), count('content_parts')], [4, 3, 2])
  t.equal((await store.lookupMessage(first.id, all.now()))?.state, 'deferred')
  t.equal((await store.lookupMessage(second.id, all.now()))?.state, 'bounced', 'its content waits')
  t.equal((await store.transcripts(first.id))?.length, 1)
  const html = await store.linkHtml((await store.linkSource(first.id))?.contentId ?? 0)
  t.equal(html?.html, HTML)
})

t.test('a message with a webhook delivery that waits, or a dead letter, stays with its events', async (t) => {
  const all = await scene(t, { messages: DAY, content: DAY, webhooksFailed: 1_000 * DAY })
  await all.store.addWebhookEndpoint(webhookEndpoint())
  await accept(all, [to()])
  await deliver(all)
  await newest(all)
  await all.pass(300 * DAY)
  t.same([all.count('messages'), all.count('webhook_deliveries'), all.count('content_parts')], [2, 2, 0])
})

t.test('a link redirects, and its list takes a refusal, long after content and message are gone', async (t) => {
  const all = await scene(t)
  const { store, pass, count } = all
  const variables = { path: 'c?d=ü', name: 'A', number: 1 }
  const message = to({ to: { name: null, address: 'Ada@Example.com' }, variables })
  await accept(all, [message])
  await deliver(all)
  await newest(all)
  const open = (): ReturnType<typeof createFollowLink> =>
    createFollowLink({ store, reader: readerHere, keys, trackingUrl: 'https://t.test', trackingHost: 't.test' })
  const follow = async (number: number) => open()(clickToken(message.id, number, keys.click))
  const targets = ['https://shop.test/a?x=1&y=2', 'https://shop.test/c?d=ü']
  for (const days of [0, 8, 90, 200]) {
    await pass(days * DAY)
    for (const [number, target] of targets.entries()) {
      t.match(await follow(number), { kind: 'found', messageId: message.id, target }, `${days} days later`)
    }
  }
  t.equal(await store.lookupMessage(message.id, all.now()), null)
  t.same(await store.recordUnsubscribe({ messageId: message.id, now: all.now() }), { kind: 'unsubscribed' })
  t.same(await store.recordUnsubscribe({ messageId: message.id, now: all.now() }), { kind: 'repeated' })
  const list = await store.listSuppressions({
    isTest: false,
    email: 'Ada@example.com',
    domains: [],
    reason: null,
    scope: null,
    since: null,
    limit: 9,
    after: null,
  })
  t.match(list.suppressions, [{ reason: 'unsubscribe', scope: 'news' }])
  const now = all.now()
  const tell = (fact: ReportedFact, sentSince = 0) =>
    store.recordReport({ messageId: message.id, now, sentSince, fact })
  const complaint: ReportedFact = { kind: 'complaint', feedbackType: 'abuse' }
  t.same(await tell({ kind: 'note', about: 'not-spam', description: '' }), { kind: 'unknown-message' })
  t.same(await tell(complaint, now - 90 * DAY), { kind: 'too-old' })
  t.match(await tell(complaint), { kind: 'recorded', isSuppressed: true }, 'a complaint suppresses')
  t.same(await tell(complaint), { kind: 'repeated' })
  t.same(await tell({ kind: 'opt-out' }), { kind: 'repeated' })
  t.equal(count("suppressions where reason = 'complaint' and scope = 'all'"), 1)
  t.equal(count("events where kind = 'email.complained'"), 1)
  await pass(70 * DAY)
  t.same(await follow(0), { kind: 'gone' }, 'after link_targets')
  t.same(await store.recordUnsubscribe({ messageId: message.id, now: all.now() }), { kind: 'unknown' })
  t.equal(count('traces'), 0)
})

t.test('with shorter times for links than for messages a click is answered 410 in time', async (t) => {
  const all = await scene(t, { content: DAY, linkTargets: 30 * DAY })
  const message = to()
  await accept(all, [message])
  await deliver(all)
  await newest(all)
  const token = clickToken(message.id, 0, keys.click)
  const follow = async () =>
    (await createFollowLink({ ...all, reader: readerHere, keys, trackingUrl: null, trackingHost: 't.test' })(token))
      .kind
  await all.pass(29 * DAY)
  t.equal(await follow(), 'found')
  await all.pass(2 * DAY)
  t.equal(await follow(), 'gone')
  t.match(await all.store.lookupMessage(message.id, all.now()), { state: 'delivered' })
})

t.test('links of removed messages are passed over, and stay', async (t) => {
  const all = await scene(t, { content: HOUR, messages: DAY })
  await newest(all)
  await newest(all)
  await newest(all)
  await all.pass(2 * DAY)
  t.same([all.count('messages'), all.count('traces'), all.count('kept_links')], [1, 2, 3])
  t.match(await all.store.forgetLinks({ before: all.now(), now: all.now(), after: 0, limit: 9 }), { removed: 1 })
  t.equal(all.count('kept_links'), 2)
})

t.test('numbers are not given twice', async (t) => {
  const all = await scene(t, { content: HOUR, messages: HOUR, linkTargets: HOUR })
  await newest(all)
  await all.pass(DAY)
  t.same([all.count('messages'), all.count('contents'), all.count('events')], [1, 1, 3])
  await newest(all)
  await all.pass(DAY)
  t.same([all.count('messages'), all.count('contents'), all.count('events')], [1, 1, 3], 'the next one in its place')
})

t.test('above its budget the oldest contents go first; pages come back; nothing that waits goes', async (t) => {
  const budget = 12 * 1_024 * 1_024
  const all = await scene(t, { budget })
  const { store, retention, count } = all
  const body = { ...sampleContent, html: 'x'.repeat(200_000) }
  const waiting = to({ expiresAt: NOW + 100 * DAY })
  await accept(all, [waiting], { content: body, sendAt: NOW + 90 * DAY })
  const ids: string[] = []
  for (let index = 0; index < 45; index += 1) {
    const message = to()
    ids.push(message.id)
    await accept(all, [message], { content: body })
  }
  await deliver(all)
  const before = await store.databaseSize()
  t.ok(before.usedBytes < 0.85 * budget, `${before.usedBytes} are in use`)
  await retention.watchBudget()
  t.equal(count('content_parts'), 46)
  for (let index = 0; index < 10; index += 1) await accept(all, [to()], { content: body })
  await deliver(all)
  await retention.watchBudget()
  const after = await store.databaseSize()
  t.ok(after.usedBytes <= 0.81 * budget, `${after.usedBytes} after it`)
  const left = await Promise.all(ids.map(async (id) => store.linkHtml((await store.linkSource(id))?.contentId ?? 0)))
  const firstKept = left.findIndex((html) => html !== null)
  t.ok(firstKept > 0, `${firstKept} of the oldest are gone`)
  t.ok(
    left.slice(firstKept).every((html) => html !== null),
    'and no younger one',
  )
  t.not(await store.linkHtml((await store.linkSource(waiting.id))?.contentId ?? 0), null, 'what waits keeps its body')
  t.equal(count('messages'), 56)
  t.match(all.lines.at(-1), { msg: 'retention' })

  // Everything goes: most of the file is given back.
  await all.pass(20 * DAY)
  await store.close()
  const { store: again } = await openTestStore(all.location)
  t.teardown(() => again.close())
  const end = await again.databaseSize()
  t.ok(end.fileBytes < before.fileBytes * 0.7, `${before.fileBytes} -> ${end.fileBytes} bytes`)
})

t.test('a budget that what waits alone exceeds is told once, and costs no message', async (t) => {
  const all = await scene(t, { budget: 2 * 1_024 * 1_024 })
  const body = { ...sampleContent, html: 'x'.repeat(500_000) }
  for (let index = 0; index < 5; index += 1) {
    await accept(all, [to({ expiresAt: NOW + 9 * DAY })], { content: body, sendAt: NOW + 8 * DAY })
  }
  await all.retention.watchBudget()
  await all.retention.watchBudget()
  await all.pass(DAY)
  t.equal(all.count('content_parts'), 5)
  t.equal(all.lines.filter(({ level }) => level === 'error').length, 1)
})

t.test('by a clock that jumped nothing goes by its age, also above the budget', async (t) => {
  const all = await scene(t, { budget: 1 })
  const { store, count } = all
  await store.addWebhookEndpoint(webhookEndpoint())
  await accept(all, [to()])
  await deliver(all)
  await post(all, { kind: 'dead-letter' })
  await newest(all)
  all.steadyFor(DAY - 1)
  await all.clock.advance(400 * DAY)
  await all.retention.watchBudget()
  t.same(['messages', 'webhook_deliveries'].map(count), [2, 2])
  t.same(count('transcripts'), 0, 'what goes whatever its age does')
  t.match(all.lines.at(-2), { msg: /a day after the jump of the clock/ })
  all.steadyFor(DAY)
  await all.pass(0)
  t.same(['messages', 'webhook_deliveries'].map(count), [1, 1])
})

t.test('a database that stays above its budget says why again when that changes', async (t) => {
  const times = { budget: 1 }
  const all = await scene(t, times)
  const told = () => all.lines.filter(({ msg }) => /budget/.test(String(msg))).map(({ msg }) => String(msg))
  all.steadyFor(DAY - 1)
  await all.retention.watchBudget()
  await all.retention.watchBudget()
  t.match(told(), [/a day after the jump of the clock/])
  all.steadyFor(DAY)
  await all.retention.watchBudget()
  await all.pass(0)
  t.match(told().slice(1), [/nothing final is left/])
  times.budget = 2 ** 40
  await all.pass(0)
  t.match(told().slice(2), [/below its budget again/])
})

t.test('figures: kinds together are what is in use, and growth is the mean of the days', async (t) => {
  const all = await scene(t)
  const body = { ...sampleContent, html: 'x'.repeat(20_000) }
  for (let index = 0; index < 100; index += 1) await accept(all, [to()], { content: body })
  await deliver(all)
  const { kinds, usedBytes, growthPerDay } = await all.store.storageFigures()
  t.equal(growthPerDay, null)
  t.equal(
    kinds.reduce((sum, { bytes }) => sum + bytes, 0),
    usedBytes,
  )
  const content = kinds.find(({ kind }) => kind === 'content')?.bytes ?? 0
  t.ok(content > 1_900_000 && content < 3_200_000, `2 MB of bodies are taken for ${content}`)
  await all.store.noteDatabaseSize('2026-11-21', 1_000)
  await all.store.noteDatabaseSize('2026-11-21', 5_000)
  await all.store.noteDatabaseSize('2026-11-23', 3_000)
  t.equal((await all.store.storageFigures()).growthPerDay, 1_000)
})
