/**
 * Opens and clicks from token to event: targets found again, people told from machines, hits that wait, and
 * unsubscribing; with a real store and a clock that the test moves.
 */
import { createSecretKey } from 'node:crypto'
import t, { type Test } from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { textOf } from '../../src/content/mime/body-text.ts'
import { prepareContent, bodiesOf } from '../../src/content/prepare-content.ts'
import { messageUrls } from '../../src/content/message-fields.ts'
import { clickToken, unsubscribeToken } from '../../src/mail/message-token.ts'
import type { StoredContent, Variables } from '../../src/mail/message.ts'
import { createMachineList, isOfBurst, networkOf, type ClickRun } from '../../src/messages/engagement/machine-hits.ts'
import {
  createFollowLink,
  createEngagement,
  type EngagementOptions,
} from '../../src/messages/engagement/record-engagement.ts'
import { createUnsubscribing } from '../../src/messages/engagement/unsubscribe.ts'
import type { RecordEngagementRequest } from '../../src/store/records/engagement-records.ts'
import type { Store } from '../../src/store/store.ts'
import { readerHere } from './acceptance-parts.ts'
import { testStore } from '../senders/sender-parts.ts'
import { acceptOne, claim, delivered, NOW, outcomeRecord, sampleContent } from '../store/store-samples.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

const MINUTE = 60_000
const KEYS = {
  open: createSecretKey(Buffer.alloc(32, 1)),
  click: createSecretKey(Buffer.alloc(32, 2)),
  unsubscribe: createSecretKey(Buffer.alloc(32, 3)),
}
const BASE_URL = 'https://track.example.net'
const PERSON = { address: '192.0.2.7', userAgent: 'Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15' }
const SCANNER = { address: '192.0.2.8', userAgent: 'curl/8.5.0' }
const OTHER_NETWORK = { ...PERSON, address: '198.51.100.7' }
const MACHINES = ['^curl\\b', 'barracuda', '203.0.113.0/24', '2001:db8:5::/48']

interface Parts {
  store: Store
  clock: ManualClock
  engagement: ReturnType<typeof createEngagement>
  metrics: ReturnType<typeof createMetrics>
  /** What the store took. */
  requests: RecordEngagementRequest[]
  /** Set: the store takes nothing. */
  failure: { error?: Error }
  events: { count: number }
  log: string[]
  /** Accepts and delivers a mail a minute ago; what is in it leads back here. */
  mail(content: Partial<StoredContent>, variables?: Variables): Promise<Mail>
  counts(messageId: string): Promise<unknown>
}

interface Mail {
  messageId: string
  html: string
  pixel: string
  /** Tokens of the links, in their order. */
  links: string[]
}

async function startParts(t: Test, changes: Partial<EngagementOptions> = {}): Promise<Parts> {
  const real = await testStore(t)
  const clock = manualClock(NOW)
  const metrics = createMetrics()
  const requests: RecordEngagementRequest[] = []
  const failure: Parts['failure'] = {}
  const events = { count: 0 }
  const log: string[] = []
  const store: Store = {
    ...real,
    async recordEngagement(request) {
      if (failure.error !== undefined) throw failure.error
      const tally = await real.recordEngagement(request)
      requests.push(request)
      return tally
    },
  }
  const engagement = createEngagement({
    store,
    reader: readerHere,
    clock,
    metrics,
    keys: KEYS,
    trackingUrl: null,
    trackingHost: 'track.example.net',
    machines: MACHINES,
    storesClient: false,
    logger: createLogger({ level: 'debug', write: (line) => void log.push(line) }),
    onEvents: () => void events.count++,
    ...changes,
  })
  const mail: Parts['mail'] = async (content, variables = {}) => {
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const stored = { ...sampleContent, subject: 'x', tracking: { opens: true, clicks: true }, ...content }
    const messageId = await acceptOne(store, { content: stored }, { variables })
    const [message] = await claim(store, epoch)
    if (message === undefined) throw new Error('nothing was claimed')
    await store.recordOutcomes({ epoch, now: NOW - MINUTE, outcomes: [outcomeRecord(message, delivered)] })
    const urls = messageUrls({ messageId, baseUrl: BASE_URL, keys: KEYS })
    const html = textOf(bodiesOf(prepareContent(stored), variables, urls).html ?? [])
    const tokens = (letter: string): string[] =>
      [...html.matchAll(new RegExp(`${BASE_URL}/${letter}/([a-z2-7]+)`, 'g'))].map(([, token = '']) => token)
    return { messageId, html, pixel: tokens('o')[0] ?? '', links: tokens('c') }
  }
  const counts = async (messageId: string): Promise<unknown> => {
    const found = await store.lookupMessage(messageId, NOW)
    return [found?.opens, found?.clicks, found?.machineOpens, found?.machineClicks]
  }
  return { store, clock, engagement, metrics, requests, failure, events, log, mail, counts }
}

/** Moves the clock until what waits was stored. */
async function settle({ clock, requests }: Parts, batches: number): Promise<void> {
  for (let second = 0; requests.length < batches && second < 10; second++) await clock.advance(1_000)
  await until('the hits are stored', () => requests.length >= batches)
}

t.test('each link leads back to its target', async (t) => {
  const { engagement, mail, store } = await startParts(t)
  const html =
    '<a href="https://shop.test/?a=1&amp;b=2">1</a><a href="{{url}}">2</a>' +
    '<a href="https://u.test/?{{unsubscribe_url}}">3</a><a href="{{other}}">4</a><a href="javascript:x">5</a>'
  const url = 'https://own.test/grüße?x=<1>'
  const { links, messageId } = await mail({ html, unsubscribe: { list: 'news', url: null } }, { url, other: url })
  const followed = await Promise.all(links.map((token) => engagement.click(token, null)))
  const { unsubscribe } = messageUrls({ messageId, baseUrl: BASE_URL, keys: KEYS })
  t.same(
    followed,
    ['https://shop.test/?a=1&b=2', url, `https://u.test/?${unsubscribe()}`, url].map((target) => ({
      kind: 'redirect',
      target,
    })),
  )
  const raw = Buffer.from('Content-Type: text/html\r\n\r\n<a href="https://raw.test/">x</a>')
  const submitted = await acceptOne(store, {
    content: { ...sampleContent, html: null, raw, hasVariables: false, tracking: { opens: false, clicks: true } },
  })
  const token = clickToken(submitted, 0, KEYS.click)
  t.same(await engagement.click(token, null), { kind: 'redirect', target: 'https://raw.test/' }, 'of submitted mail')
})

t.test('a token that is none leads nowhere, one of a mail that is gone says so', async (t) => {
  const { engagement, mail, store, clock, requests } = await startParts(t)
  const {
    links: [link = ''],
    pixel,
    messageId,
  } = await mail({ html: '<a href="https://shop.test/">x</a>' })
  for (const token of ['', 'x', pixel, `${link.slice(0, 55)}${link.endsWith('a') ? 'b' : 'a'}`]) {
    t.same(await engagement.click(token, PERSON), { kind: 'unknown' })
    if (token !== pixel) engagement.open(token, PERSON)
  }
  engagement.open(link, PERSON)
  t.same(await engagement.click(clickToken(newIdentifier('msg', NOW), 0, KEYS.click), PERSON), { kind: 'gone' })
  t.same(await engagement.click(clickToken(messageId, 1, KEYS.click), PERSON), { kind: 'gone' }, 'no such link')
  const pruned = createFollowLink({
    store: { ...store, linkHtml: async () => null },
    reader: readerHere,
    keys: KEYS,
    trackingUrl: null,
    trackingHost: 'x',
  })
  t.same(await pruned(link), { kind: 'gone' }, 'its content is not kept')
  await clock.advance(10_000)
  t.same(requests, [], 'and nothing is recorded')
})

t.test('an open is recorded within a second, a click after it could be judged', async (t) => {
  const parts = await startParts(t)
  const { engagement, mail, clock, requests, counts, events } = parts
  const {
    links: [link = ''],
    pixel,
    messageId,
  } = await mail({ html: '<a href="https://shop.test/">x</a>' })
  engagement.open(pixel, PERSON)
  engagement.open(pixel, null)
  await engagement.click(link, null)
  await engagement.click(link, PERSON)
  t.equal(requests.length, 0, 'nobody waits for the store')
  await settle(parts, 1)
  t.same(await counts(messageId), [1, 0, 0, 0])
  await settle(parts, 2)
  t.equal(clock.now() - NOW >= 5_000, true)
  t.same(await counts(messageId), [1, 1, 0, 0])
  t.match(
    (await parts.store.messageEvents(messageId))?.at(-1),
    { kind: 'email.clicked', at: NOW, data: { url: 'https://shop.test/' } },
    'with the time of the hit',
  )
  t.equal(events.count, 2)
  t.same(
    requests.flatMap(({ hits }) => hits.map(({ client }) => client)),
    [null, null],
    'who it was is not kept',
  )
  const metrics = await parts.metrics.registry.metrics()
  t.match(metrics, 'sternpost_opens_total{machine="false"} 1\n')
  t.match(metrics, 'sternpost_clicks_total{machine="false"} 1\n')
})

t.test('scanners, proxies and bursts are machines', async (t) => {
  const parts = await startParts(t, { storesClient: true })
  const { engagement, mail, clock, counts, requests } = parts
  const html = '<a href="https://1.test/">1</a><a href="https://2.test/">2</a>'
  const one = await mail({ html })
  const [first = '', second = ''] = one.links
  await engagement.click(first, PERSON)
  await clock.advance(2_500)
  await engagement.click(second, PERSON)
  const two = await mail({ html })
  await engagement.click(two.links[0] ?? '', PERSON)
  await clock.advance(3_500)
  await engagement.click(two.links[1] ?? '', PERSON)
  await clock.advance(4_000)
  const three = await mail({ html })
  await engagement.click(three.links[0] ?? '', PERSON)
  await clock.advance(4_000)
  await engagement.click(three.links[0] ?? '', OTHER_NETWORK)
  const four = await mail({ html })
  await engagement.click(four.links[0] ?? '', SCANNER)
  engagement.open(four.pixel, { address: '192.0.2.9', userAgent: 'Mozilla/5.0' })
  engagement.open(four.pixel, { address: '203.0.113.9', userAgent: PERSON.userAgent })
  engagement.open(four.pixel, { address: '192.0.2.9', userAgent: 'Mozilla/5.0 (via ggpht.com GoogleImageProxy)' })
  await engagement.stop()
  t.same(await counts(one.messageId), [0, 0, 0, 2], 'two links within 3 s')
  t.same(await counts(two.messageId), [1, 2, 0, 0], 'two links 3.5 s apart')
  t.same(await counts(three.messageId), [0, 0, 0, 2], 'one link from two networks within 10 s')
  t.same(await counts(four.messageId), [1, 0, 2, 1], 'by user agent and network')
  t.ok(
    requests.flatMap(({ hits }) => hits).every(({ client }) => client !== null),
    'and kept where that is wanted',
  )
})

t.test('what a machine did is told at once too', async (t) => {
  const parts = await startParts(t)
  const { pixel, messageId } = await parts.mail({ html: '<p>x</p>' })
  parts.engagement.open(pixel, SCANNER)
  await settle(parts, 1)
  t.same(await parts.counts(messageId), [0, 0, 1, 0])
  await until('the webhooks are woken', () => parts.events.count === 1)
})

t.test('hits wait while the store takes none, and the oldest are dropped when they are too many', async (t) => {
  const parts = await startParts(t)
  const { engagement, mail, clock, failure, requests, metrics, log, counts } = parts
  const {
    pixel,
    links: [link = ''],
    messageId,
  } = await mail({ html: '<a href="https://shop.test/">x</a>' })
  failure.error = Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' })
  await engagement.click(link, PERSON)
  for (let second = 0; second < 8; second++) await clock.advance(1_000)
  t.equal((await engagement.click(link, null)).kind, 'redirect', 'that needs no write')
  t.same(
    log.map((line) => (JSON.parse(line) as { msg: string }).msg),
    ['opens and clicks wait'],
    'said once',
  )
  for (let count = 0; count < 10_000; count++) engagement.open(pixel, PERSON)
  await clock.advance(1_000)
  t.match(await metrics.registry.metrics(), 'sternpost_engagement_dropped_total 1\n')
  delete failure.error
  await clock.advance(1_000)
  await until('all is stored', () => requests.length === 20)
  t.ok(
    requests.every(({ hits }) => hits.length === 500),
    'in batches',
  )
  await until('the last one too', async () => JSON.stringify(await counts(messageId)) === '[10000,0,0,0]')
})

t.test('a stop stores what waits', async (t) => {
  const { engagement, mail, counts } = await startParts(t)
  const {
    links: [link = ''],
    messageId,
  } = await mail({ html: '<a href="https://shop.test/">x</a>' })
  await engagement.click(link, PERSON)
  await engagement.stop()
  t.same(await counts(messageId), [1, 1, 0, 0])
})

t.test('many clicks on one link are those of one person, and of many links those of a machine', async (t) => {
  const parts = await startParts(t)
  const { engagement, mail, counts, clock, store } = parts
  const {
    links: [link = ''],
    messageId,
  } = await mail({ html: '<a href="https://shop.test/">x</a>' })
  for (let second = 0; second < 20; second++) {
    await Promise.all(Array.from({ length: 50 }, () => engagement.click(link, PERSON)))
    await clock.advance(1_000)
  }
  const html = Array.from({ length: 60 }, (_, index) => `<a href="https://shop.test/${index}">x</a>`).join('')
  const other = await mail({ html })
  for (const each of other.links) await engagement.click(each, PERSON)
  await engagement.stop()
  t.same(await counts(messageId), [1, 1_000, 0, 0])
  const clicked = (await store.messageEvents(messageId))?.filter(({ kind }) => kind === 'email.clicked')
  t.equal(clicked?.length, 1, 'and one event')
  t.same(await counts(other.messageId), [0, 0, 0, 60])
})

t.test('each click of a run counts for a burst', async (t) => {
  const { engagement, mail, counts, clock } = await startParts(t)
  const {
    links: [first = '', second = ''],
    messageId,
  } = await mail({ html: '<a href="https://1.test/">1</a><a href="https://2.test/">2</a>' })
  await engagement.click(first, PERSON)
  await clock.advance(2_500)
  await engagement.click(first, PERSON)
  await clock.advance(2_500)
  await engagement.click(second, PERSON)
  await engagement.stop()
  t.same(await counts(messageId), [1, 1, 0, 2], 'all but the first one')
})

t.test('the signs of a machine', async (t) => {
  const { isMachineOpen, isMachineClick } = createMachineList(MACHINES)
  const agent = (userAgent: string, address = '192.0.2.1') => ({ userAgent, address })
  const machines = [agent('curl/8'), agent('Barracuda x'), agent('', '203.0.113.200'), agent('', '2001:db8:5:1::1')]
  for (const client of machines) {
    t.equal(isMachineOpen(client) && isMachineClick(client), true, JSON.stringify(client))
  }
  for (const client of [agent(''), agent('Mozilla/5.0 (X11)'), agent('x curl'), agent('x', 'not an address')]) {
    t.equal(isMachineOpen(client) || isMachineClick(client), false, JSON.stringify(client))
  }
  t.equal(isMachineOpen(agent('Mozilla/5.0')), true)
  t.equal(isMachineClick(agent('Mozilla/5.0')), false, 'a privacy proxy only fetches pictures')
  t.equal(isMachineOpen(agent('YahooMailProxy; https://x', '203.0.113.2')), false)

  t.equal(networkOf('192.0.2.7'), networkOf('192.0.2.200'))
  t.not(networkOf('192.0.2.7'), networkOf('192.0.3.7'))
  t.equal(networkOf('2001:db8:5::1'), networkOf('2001:db8:5:ff:1::'))
  t.not(networkOf('2001:db8:5::1'), networkOf('2001:db8:6::1'))
  t.same(['::1', '2001:db8::', '::ffff:10.1.2.3', 'x'].map(networkOf), ['0:0:0', '2001:db8:0', '10.1.2', ''])

  const click = (linkNumber: number, at: number, network = 'n'): ClickRun => ({ linkNumber, at, until: at, network })
  const burst: [ClickRun, boolean][] = [
    [click(1, 0), false],
    [click(1, 9_000), false],
    [click(2, 3_000), true],
    [click(2, 3_001), false],
    [click(2, -3_000), true],
    [click(1, 10_000, 'm'), true],
    [click(1, 10_001, 'm'), false],
    [click(2, 4_000, 'm'), false],
  ]
  for (const [other, expected] of burst) t.equal(isOfBurst(click(1, 0), [other]), expected, JSON.stringify(other))
})

t.test('a token takes its recipient off the list, once', async (t) => {
  const { store, mail, clock } = await startParts(t)
  const events = { count: 0 }
  const { isUnsubscribeToken, unsubscribe } = createUnsubscribing({
    store,
    clock,
    metrics: createMetrics(),
    key: KEYS.unsubscribe,
    logger: createLogger({ level: 'silent' }),
    onEvents: () => void events.count++,
  })
  const content = { html: '<a href="https://x.test">x</a>', unsubscribe: { list: 'news', url: null } }
  const {
    messageId,
    links: [link = ''],
  } = await mail(content)
  const token = unsubscribeToken(messageId, 0, KEYS.unsubscribe)
  t.same([isUnsubscribeToken(token), isUnsubscribeToken(link), isUnsubscribeToken('')], [true, false, false])
  t.same([await unsubscribe(token), await unsubscribe(token.toUpperCase())], [true, true])
  t.equal(await unsubscribe(link), false)
  t.equal(events.count, 1)
  const asked = {
    isTest: false,
    email: null,
    domains: [],
    reason: null,
    scope: null,
    since: null,
    limit: 10,
    after: null,
  }
  t.equal((await store.listSuppressions(asked)).suppressions.length, 1)
  const foreign = unsubscribeToken(newIdentifier('msg', NOW), 0, KEYS.unsubscribe)
  t.equal(await unsubscribe(foreign), false, 'its mail is not kept any more')
})
