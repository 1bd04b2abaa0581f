/**
 * Opens, clicks and unsubscribes: what every store engine must count, tell and remember of them.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import type { EngagementHit, RecordEngagementRequest } from '../../src/store/records/engagement-records.ts'
import type { Store } from '../../src/store/store.ts'
import { webhookClaim, type Cases } from './conformance-case.ts'
import {
  acceptOne,
  claim,
  delivered,
  domainCheck,
  domainRecord,
  LIVE_SUPPRESSIONS,
  lookUp,
  NOW,
  outcomeRecord,
  sampleContent,
  webhookEndpoint,
} from './store-samples.ts'

const LATER = NOW + 60_000
const SHOP = { number: 0, url: 'https://shop.test/?a=1&b=2' }
const HELP = { number: 3, url: 'https://help.test/' }

/** A message that was delivered at NOW, and an endpoint that wants everything. */
async function deliveredMessage(store: Store, content = sampleContent, isTest = false): Promise<string> {
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const id = await acceptOne(store, { content, isTest })
  const [message] = await claim(store, epoch)
  if (message === undefined) throw new Error('nothing was claimed')
  await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, delivered)] })
  await store.addWebhookEndpoint(webhookEndpoint({ events: ['email.opened', 'email.clicked', 'email.unsubscribed'] }))
  return id
}

function hit(messageId: string, changes: Partial<EngagementHit> = {}): EngagementHit {
  return { messageId, link: null, at: LATER, isMachine: false, client: null, ...changes }
}

const hits = (...those: EngagementHit[]): RecordEngagementRequest => ({
  now: LATER,
  hits: those,
  machineAfterDelivery: 2_000,
})

async function toldOf(store: Store): Promise<unknown[]> {
  const { epoch } = await store.beginEpoch(LATER, LATER)
  const claimed = await store.claimWebhooks(webhookClaim(epoch, LATER))
  return claimed.map(({ body }) => JSON.parse(Buffer.from(body).toString()))
}

async function countsOf(store: Store, id: string): Promise<unknown> {
  const message = await lookUp(store, id)
  return [message?.opens, message?.clicks, message?.machineOpens, message?.machineClicks]
}

async function timelineOf(store: Store, id: string): Promise<unknown[]> {
  const events = (await store.messageEvents(id)) ?? []
  return events.filter(({ kind }) => /opened|clicked/.test(kind)).map(({ kind, at, data }) => ({ kind, at, data }))
}

const recipient = 'ada@example.com'

export const engagement: Cases = {
  'the first open is told, and every one is counted': async (t, { store }) => {
    const id = await deliveredMessage(store)
    t.same(await store.recordEngagement(hits(hit(id), hit(id, { at: LATER + 1 }))), {
      opens: 2,
      clicks: 0,
      machineOpens: 0,
      machineClicks: 0,
    })
    t.same(await store.recordEngagement(hits(hit(id))), { opens: 1, clicks: 0, machineOpens: 0, machineClicks: 0 })
    t.same(await countsOf(store, id), [3, 0, 0, 0])
    t.same(await timelineOf(store, id), [{ kind: 'email.opened', at: LATER, data: { message_id: id, recipient } }])
    const told = { event: 'email.opened', timestamp: LATER / 1_000, data: { message_id: id, recipient } }
    t.same(await toldOf(store), [told])
  },

  'the first click on each link is told, and opens the mail': async (t, { store }) => {
    const id = await deliveredMessage(store)
    await store.recordEngagement(
      hits(hit(id, { link: SHOP }), hit(id, { link: HELP }), hit(id, { link: SHOP, at: LATER + 5 }), hit(id)),
    )
    t.same(await countsOf(store, id), [2, 3, 0, 0])
    const told = await toldOf(store)
    t.same(told, [
      { event: 'email.opened', timestamp: LATER / 1_000, data: { message_id: id, recipient } },
      { event: 'email.clicked', timestamp: LATER / 1_000, data: { message_id: id, recipient, url: SHOP.url } },
      { event: 'email.clicked', timestamp: LATER / 1_000, data: { message_id: id, recipient, url: HELP.url } },
    ])
    t.same(Object.keys((told[1] as { data: object }).data), ['message_id', 'recipient', 'url'])
  },

  'a click of a mail that does not track opens tells of no open': async (t, { store }) => {
    const id = await deliveredMessage(store, { ...sampleContent, tracking: { opens: false, clicks: true } })
    await store.recordEngagement(hits(hit(id, { link: SHOP })))
    t.same(await countsOf(store, id), [0, 1, 0, 0])
    t.match(await toldOf(store), [{ event: 'email.clicked' }])
    t.equal((await timelineOf(store, id)).length, 1)
  },

  'a link that is no text of a browser stops no statistics': async (t, { store }) => {
    const id = await deliveredMessage(store)
    const urls = [
      'https://shop.test/\0\0',
      'https://shop.test/\\\0',
      'https://shop.test/\\u0000',
      'https://shop.test/\ud800',
    ]
    const links = urls.map((url, number) => ({ number, url }))
    await store.recordEngagement(hits(...links.map((link) => hit(id, { link }))))
    t.equal((await timelineOf(store, id)).length, 1 + urls.length, 'the first one opens it')
    t.equal(await store.sumStatistics(1_000), false)
    const past = { hour: 0, name: '', domain: '' }
    const step = 3_600_000
    const all = { isTest: false, isNamed: true, step, past, before: LATER + step, domains: [] }
    t.match(await store.statistics({ ...all, dimension: 'domain' }), { rows: [{ clicked: urls.length }] })
  },

  'what machines do is a line of the timeline, counted apart and told to nobody': async (t, { store }) => {
    const id = await deliveredMessage(store)
    const isMachine = true
    const clicked = hit(id, { isMachine, link: SHOP })
    t.same(await store.recordEngagement(hits(hit(id, { isMachine }), clicked, hit(id, { isMachine }))), {
      opens: 0,
      clicks: 0,
      machineOpens: 2,
      machineClicks: 1,
    })
    t.same(await countsOf(store, id), [0, 0, 2, 1])
    t.same(await timelineOf(store, id), [
      { kind: 'email.opened', at: LATER, data: { message_id: id, recipient, machine: 'true' } },
      { kind: 'email.clicked', at: LATER, data: { message_id: id, recipient, url: SHOP.url, machine: 'true' } },
    ])
    t.same(await toldOf(store), [])
    await store.recordEngagement(hits(hit(id, { link: SHOP })))
    t.equal((await toldOf(store)).length, 2, 'a person behind a machine is told')
  },

  'nobody reads a mail in the moment of its delivery': async (t, { store }) => {
    const id = await deliveredMessage(store)
    const { epoch } = await store.beginEpoch(NOW, NOW)
    const sending = await acceptOne(store)
    await claim(store, epoch)
    const waiting = await acceptOne(store)
    await store.recordEngagement(
      hits(
        hit(id, { at: NOW - 1 }),
        hit(id, { at: NOW + 1_999 }),
        hit(id, { at: NOW + 2_000 }),
        hit(sending),
        hit(waiting),
      ),
    )
    t.same(await countsOf(store, id), [1, 0, 2, 0])
    t.same(await countsOf(store, sending), [0, 0, 1, 0])
    t.same(await countsOf(store, waiting), [1, 0, 0, 0], 'its host may have taken it without an answer')
  },

  'hits of a message that is not there are left out': async (t, { store }) => {
    const id = newIdentifier('msg', NOW)
    const tally = await store.recordEngagement(hits(hit(id), hit(id, { link: SHOP })))
    t.same(tally, { opens: 0, clicks: 0, machineOpens: 0, machineClicks: 0 })
  },

  'what links are found again by is there as long as the content': async (t, { store, contentReader }) => {
    await store.addDomain(domainRecord(), null)
    const html = `<a href="https://shop.test/{{id}}">ü</a>${'x'.repeat(1_100_000)}`
    const attachments = [{ name: 'a', contentType: 'a/b', contentId: null, bytes: Buffer.alloc(10) }]
    const content = { ...sampleContent, html, text: 'text', attachments, unsubscribe: { list: 'news', url: null } }
    const id = await acceptOne(store, { content }, { variables: { id: 7 } })
    const source = await store.linkSource(id)
    t.match(source, { hasVariables: true, variables: { id: 7 }, unsubscribe: content.unsubscribe, trackingHost: null })
    t.same(await store.linkHtml(source?.contentId ?? 0), { html, raw: null })
    t.equal(await store.linkSource(newIdentifier('msg', NOW)), null)
    t.equal(await store.linkHtml(999), null)

    const raw = Buffer.from('Subject: x\r\n\r\nüx')
    const submitted = await acceptOne(store, { content: { ...sampleContent, html: null, raw, hasVariables: false } })
    const mail = await store.linkHtml((await store.linkSource(submitted))?.contentId ?? 0)
    t.same([mail?.html, Buffer.from(mail?.raw ?? []).toString()], [null, raw.toString()])
    const plain = await acceptOne(store, { content: { ...sampleContent, html: null, text: 'x' } })
    t.same(await store.linkHtml((await store.linkSource(plain))?.contentId ?? 0), { html: '', raw: null })

    // A resolver may answer anything.
    const found = { purpose: 'tracking', found: ['\0\0', '\\u0000', '\ud800'], error: null, hint: null, checkedAt: NOW }
    await store.recordDomainCheck(domainCheck({ checks: [{ ...found, status: 'verified' }] }))
    t.equal((await store.linkSource(id))?.trackingHost, 't.acme.com')
    const reader = await contentReader()
    t.equal(await reader.trackingHost('acme.com'), 't.acme.com', 'as the mail itself is made with')
  },
}

export const unsubscribing: Cases = {
  'the recipient leaves the list of the mail, once': async (t, { store }) => {
    const content = { ...sampleContent, unsubscribe: { list: 'news', url: null } }
    const id = await deliveredMessage(store, content)
    t.same(await store.recordUnsubscribe({ messageId: id, now: LATER }), { kind: 'unsubscribed' })
    t.same(await store.recordUnsubscribe({ messageId: id, now: LATER + 5 }), { kind: 'repeated' })
    const { suppressions } = await store.listSuppressions(LIVE_SUPPRESSIONS)
    t.match(suppressions, [
      { email: recipient, reason: 'unsubscribe', scope: 'news', isTest: false, messageId: id, createdAt: LATER },
    ])
    t.equal(suppressions.length, 1)
    const data = { message_id: id, recipient, list: 'news' }
    t.same(await toldOf(store), [{ event: 'email.unsubscribed', timestamp: LATER / 1_000, data }])

    await store.removeSuppressions({ email: recipient, scope: null, isTest: false, domains: [] })
    t.same(await store.recordUnsubscribe({ messageId: id, now: LATER }), { kind: 'unsubscribed' }, 'after coming back')
  },

  'mail of a test key has its own list, simulated recipients have none': async (t, { store }) => {
    const content = { ...sampleContent, unsubscribe: { list: 'news', url: null } }
    const id = await deliveredMessage(store, content, true)
    await store.recordUnsubscribe({ messageId: id, now: LATER })
    const address = 'delivered@simulator.sternpost.test'
    const simulated = await acceptOne(
      store,
      { content },
      { to: { name: null, address }, recipientDomain: 'simulator.sternpost.test' },
    )
    t.same(await store.recordUnsubscribe({ messageId: simulated, now: LATER }), { kind: 'unsubscribed' })
    t.same(await store.recordUnsubscribe({ messageId: simulated, now: LATER }), { kind: 'repeated' })
    const listOf = async (isTest: boolean): Promise<string[]> => {
      return (await store.listSuppressions({ ...LIVE_SUPPRESSIONS, isTest })).suppressions.map(({ email }) => email)
    }
    t.same([await listOf(true), await listOf(false)], [[recipient], []])
  },

  'a mail of no list, and no mail, change nothing': async (t, { store }) => {
    const id = await deliveredMessage(store)
    t.same(await store.recordUnsubscribe({ messageId: id, now: LATER }), { kind: 'unknown' })
    t.same(await store.recordUnsubscribe({ messageId: newIdentifier('msg', NOW), now: LATER }), { kind: 'unknown' })
    t.same(await toldOf(store), [])
  },
}
