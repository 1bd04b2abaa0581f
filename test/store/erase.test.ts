/**
 * Erasing an address: it is in no row any more, what waits for it is canceled, and nothing is accepted for it again,
 * though nobody can read it from the list.
 */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { messageData } from '../../src/messages/lookup/message-data.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { eraseRecipient, exportRecipient } from '../../src/messages/lookup/recipient-data.ts'
import { createBackups } from '../../src/store/open/backups.ts'
import { restoreBackup } from '../../src/store/open/offline.ts'
import { databasePath } from '../../src/store/sqlite/engine/database.ts'
import { storedIdentifier } from '../../src/store/verbs/tools/stored-identifier.ts'
import { formsOfAddress } from '../../src/store/verbs/tools/stored-address.ts'
import { manualClock } from '../support/manual-clock.ts'
import { skipWithoutPostgres } from '../support/postgres-cluster.ts'
import { postgresLocation, startWithTables } from './postgres-support.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import {
  acceptOne,
  acceptRequest,
  bounced,
  claim,
  deferredUntil,
  lookUp,
  newMessage,
  NOW,
  outcomeRecord,
  sampleBounce,
  sampleContent,
  webhookEndpoint,
} from './store-samples.ts'
import { newIdentifier } from '../../src/base/identifier.ts'

const ADDRESS = 'Ada.Lovelace@example.com'
const to = { name: 'Ada Lovelace', address: ADDRESS }

t.test('an address that was erased is nowhere in the database, and nothing is sent to it again', async (t) => {
  const location = locationIn(t.testdir({}), { erasureKey: Buffer.alloc(32, 5) })
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const clock = manualClock(NOW)
  const { epoch } = await store.beginEpoch(NOW, NOW)
  await store.addWebhookEndpoint(webhookEndpoint({ events: ['*'] }))
  const content = {
    ...sampleContent,
    subject: `For ${ADDRESS}`,
    html: `<p>${ADDRESS}</p>`,
    hasVariables: false,
    headers: [['X-For', ADDRESS]] as [string, string][],
    tags: { user: ADDRESS },
    unsubscribe: { list: 'news', url: `https://shop.test/leave?mail=${encodeURIComponent(ADDRESS)}` },
  }
  const alone = await acceptOne(store, { content }, { to, variables: { mail: ADDRESS } })
  const shared = newMessage({ to: { name: null, address: ADDRESS.toLowerCase() } })
  const neighbour = newMessage()
  await store.acceptMessages(acceptRequest({ messages: [shared, neighbour] }))
  await store.indexSubjects(100)
  const rows = (await claim(store, epoch)).filter(({ recipient }) => recipient !== neighbour.to.address)
  const bounce = { ...sampleBounce, description: `550 <${ADDRESS}>: no such user` }
  await store.recordOutcomes({
    epoch,
    now: NOW,
    outcomes: rows.map((row) => ({
      ...outcomeRecord(row, { ...bounced, bounce } as typeof bounced, { reply: bounce.description }),
      suppresses: true,
      transcript: `> RCPT TO:<${ADDRESS}>\n< ${bounce.description}`,
    })),
  })
  const removed = newIdentifier('msg', NOW)
  leaveTrace(location.folder, alone, removed)
  t.same(await store.recordUnsubscribe({ messageId: removed, now: NOW }), { kind: 'unsubscribed' })
  const complaint = { kind: 'complaint', feedbackType: 'abuse' } as const
  t.match(await store.recordReport({ messageId: removed, now: NOW, sentSince: 0, fact: complaint }), {
    kind: 'recorded',
  })
  await store.addSuppression({
    id: newIdentifier('sup', NOW),
    email: ADDRESS,
    reason: 'unsubscribe',
    scope: 'news',
    domain: null,
    owners: [],
    isTest: false,
    messageId: alone,
    createdAt: NOW,
  })
  await store.keepUnmatchedReport({
    at: NOW,
    kind: 'bounce',
    sender: '',
    recipient: 'x@rp.test',
    remoteAddress: '127.0.0.1',
    bytes: Buffer.from(`To: ${ADDRESS}`),
  })
  await store.removeSuppressions({ email: ADDRESS, scope: 'all', isTest: false, domains: [] })
  const later = await acceptOne(store, { sendAt: NOW + 1_000 }, { to })
  await store.addSuppression({
    id: newIdentifier('sup', NOW),
    email: ADDRESS,
    reason: 'hard_bounce',
    scope: 'all',
    domain: null,
    owners: [],
    isTest: false,
    messageId: alone,
    createdAt: NOW,
  })

  const page = await exportRecipient({ store, clock }, 'Ada.Lovelace@EXAMPLE.com', null)
  t.match(
    page.messages.map((message) => (message as { message_id: string }).message_id),
    [later, shared.id, alone],
  )
  t.match(page.suppressions, [{ scope: 'all' }, { scope: 'news' }])
  t.match(JSON.stringify(page), new RegExp(`RCPT TO:<${ADDRESS}>`))
  t.equal(page.next, null)

  t.match(await eraseRecipient({ store, clock }, 'adA.lovelacE@example.com'), { messages: 3, canceled: 1, sending: 0 })
  t.match(await lookUp(store, alone), { state: 'bounced', recipient: 'erased@erased.invalid', subject: '' })
  t.match(await lookUp(store, later), { state: 'canceled' })
  t.match(await lookUp(store, neighbour.id), { recipient: neighbour.to.address, subject: 'Order {{number}}' })
  const erased = await store.lookupMessage(shared.id, NOW)
  t.match(erased && messageData(erased), { recipient: 'erased@erased.invalid', subject: 'Order {{number}}' })
  t.equal(await store.messageContent(shared.id), null, 'what would have to be filled in is not there')
  t.equal(await store.requestToRepeat(shared.id, NOW), null)
  const late = { kind: 'note', about: 'delayed', description: `for ${ADDRESS}` } as const
  const told = await store.recordReport({ messageId: shared.id, now: NOW, sentSince: 0, fact: late })
  t.same(told, { kind: 'unknown-message' }, 'a report would bring it back')
  const client = { address: '192.0.2.7', userAgent: 'Reader' }
  const hit = { messageId: shared.id, link: null, at: NOW, isMachine: false, client }
  t.match(await store.recordEngagement({ now: NOW, hits: [hit], machineAfterDelivery: 0 }), { opens: 0 })
  t.same(await store.recordUnsubscribe({ messageId: alone, now: NOW }), { kind: 'repeated' }, 'the list has the person')
  t.same(rowsWith(location.folder, ADDRESS), [], 'in no row of no table')
  t.same(rowsWith(location.folder, ADDRESS.toLowerCase()), [])
  t.same(rowsWith(location.folder, encodeURIComponent(ADDRESS)), [])
  t.same((await exportRecipient({ store, clock }, ADDRESS, null)).messages, [])

  for (const address of [ADDRESS, 'Ada.Lovelace@Example.COM', 'ADA.Lovelace@example.com']) {
    const again = await acceptOne(store, {}, { to: { name: null, address } })
    t.match(await lookUp(store, again), { state: 'suppressed' }, address)
  }
  const other = await acceptOne(store, {}, { to: { name: null, address: 'ada@example.com' } })
  t.match(await lookUp(store, other), { state: 'queued' }, 'another one is another one')
  t.same(
    await store.removeSuppressions({ email: ADDRESS, scope: null, isTest: false, domains: [] }),
    3,
    'its owner may come back',
  )
  const back = await acceptOne(store, {}, { to })
  t.match(await lookUp(store, back), { state: 'queued' })
})

t.test('what is being sent cannot be taken back, and is said; it is not tried again', async (t) => {
  const location = locationIn(t.testdir({}), { erasureKey: Buffer.alloc(32, 5) })
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const id = await acceptOne(store, {}, { to })
  const sending = await claim(store, epoch)
  const clock = manualClock(NOW)
  t.match(await eraseRecipient({ store, clock }, ADDRESS), { messages: 0, canceled: 0, sending: 1 })
  const outcomes = sending.map((message) => outcomeRecord(message, deferredUntil(NOW + 9)))
  await store.recordOutcomes({ epoch, now: NOW + 1, outcomes })
  t.same(await claim(store, epoch, NOW + 9), [])
  t.match(await store.expireDue(NOW + 9, 9), [{ id }])
  t.match(await eraseRecipient({ store, clock }, ADDRESS), { messages: 1, canceled: 0, sending: 0 })
  await t.rejects(eraseRecipient({ store, clock }, 'nobody'), { code: 'invalid_request' })
})

t.test('what a restored backup has for an erased address is canceled when it is released', async (t) => {
  const folder = t.testdir({})
  const location = locationIn(folder, { erasureKey: Buffer.alloc(32, 5) })
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const clock = manualClock(NOW)
  const erased = await acceptOne(store, {}, { to })
  const other = await acceptOne(store)
  const backups = createBackups({
    databaseFile: databasePath(location),
    configurationFolder: folder,
    clock,
    metrics: createMetrics(),
    settings: () => ({ dir: join(folder, 'backups'), keep: 1, keptFreeBytes: 0 }),
    logger: createLogger({ level: 'error', write() {} }),
  })
  const { path } = await backups.write(null)
  await eraseRecipient({ store, clock }, ADDRESS)
  await store.close()
  // As the command does it: it has no master key.
  restoreBackup({ file: path, location: locationIn(folder), now: NOW, keepsAllowance: true, onStage() {} })
  const { store: restored } = await openTestStore(location)
  t.teardown(() => restored.close())
  const { epoch } = await restored.beginEpoch(NOW, NOW)
  const release = { filter: {}, action: { kind: 'release' }, now: NOW, limit: 9, isDryRun: false } as const
  t.match(await restored.actOnQueue(release), { messages: 2, queued: { keys: [{ waiting: 1 }] } })
  t.match(await claim(restored, epoch), [{ id: other }])
  t.equal((await lookUp(restored, erased))?.state, 'canceled')
})

t.test('many messages of one address are erased in parts', async (t) => {
  const location = locationIn(t.testdir({}), { erasureKey: Buffer.alloc(32, 5) })
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const one = { to: { name: null, address: 'b@example.com' } }
  for (let index = 0; index < 130; index += 1) await acceptOne(store, {}, one)
  const clock = manualClock(NOW)
  t.match(await eraseRecipient({ store, clock }, 'b@example.com'), { messages: 130, canceled: 130 })
  t.same(rowsWith(location.folder, 'b@example.com'), [])
})

/** Texts about ann@acme.org, and what is left of them; `-` is what takes its place. */
const TEXTS: [text: string, left: string][] = [
  ['ann@acme.org', '-'],
  ['550 <Ann@ACME.org>: no such user', '550 <->: no such user'],
  ['"ann@acme.org"', '"-"'],
  ['Ann (ann@acme.org), Bob (bob@acme.org).', 'Ann (-), Bob (bob@acme.org).'],
  ['Write to ann@acme.org. Or not', 'Write to -. Or not'],
  ['https://shop.test/?to=ann%40acme.org&x=1', 'https://shop.test/?to=-&x=1'],
  ['https://shop.test/?u=%3Fto%3Dann%40acme.org%26x', 'https://shop.test/?u=%3Fto%3D-%26x'],
  [String.raw`{"reply":"550\nann@acme.org\n\u003cann@acme.org\u003e"}`, String.raw`{"reply":"550\n-\n\u003c-\u003e"}`],
  ['宛先ann@acme.orgへ', '宛先-へ'],
  ['550-ann@acme.org is unknown\n550-ann@acme.org\n550 x', '550-- is unknown\n550--\n550 x'],
  ['<a href=3D"mailto:ann@acme.org" x=3Dann@acme.org>=20ann@acme.org', '<a href=3D"mailto:-" x=3D->=20-'],
  ...['joann@acme.org', 'jo.ann@acme.org', 'jo_ann@acme.org', 'jo-ann@acme.org', 'jo+ann@acme.org', '7ann@acme.org']
    .concat(['ann@acme.org.au', 'ann@acme.organic', 'ann@acme.org-x.com', 'ann@sub.acme.org', 'joann%40acme.org'])
    .map((other): [string, string] => [`<${other}>`, `<${other}>`]),
]

t.test('an address that is a part of another one is left alone', async (t) => {
  const forms = formsOfAddress('ann@acme.org')
  for (const [text, left] of TEXTS) t.equal(text.replace(new RegExp(forms, 'gi'), '-'), left, text)

  const location = locationIn(t.testdir({}), { erasureKey: Buffer.alloc(32, 5) })
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const { epoch } = await store.beginEpoch(NOW, NOW)
  await acceptOne(store, {}, { to: { name: null, address: 'ann@acme.org' } })
  const [row] = await claim(store, epoch)
  if (row === undefined) throw new Error('not claimed')
  const bounce = { ...sampleBounce, description: '<ann@acme.org> and joann@acme.org' }
  const outcome = { ...outcomeRecord(row, { ...bounced, bounce } as typeof bounced), events: [] }
  await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcome] })
  const report = { at: NOW, kind: 'bounce', sender: '', recipient: 'x@rp.test', remoteAddress: '127.0.0.1' } as const
  for (const about of ['ann@acme.org', 'joann@acme.org']) {
    await store.keepUnmatchedReport({ ...report, bytes: Buffer.from(`To: ${about}`) })
  }
  t.match(await eraseRecipient({ store, clock: manualClock(NOW) }, 'ann@acme.org'), { messages: 1 })
  const description = '<erased@erased.invalid> and joann@acme.org'
  t.match(await lookUp(store, row.id), { bounce: { description } })
  t.same(rowsWith(location.folder, 'joann@acme.org'), ['bounces', 'unmatched_reports'])
})

t.test('PostgreSQL reads the same expression alike', { skip: skipWithoutPostgres }, async (t) => {
  const { cluster, like } = await startWithTables(t)
  const quoted = (text: string): string => `'${text.replaceAll("'", "''")}'`
  const forms = quoted(formsOfAddress('ann@acme.org'))
  for (const [text, left] of TEXTS) {
    const asked = `select without_address(${quoted(text)}, ${forms}, '-') as left`
    t.same(await cluster.query(asked, like), [{ left }], text)
  }
  const location = { ...postgresLocation(cluster.url(like)), erasureKey: Buffer.alloc(32, 5) }
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const clock = manualClock(NOW)
  t.match(await eraseRecipient({ store, clock }, 'ann@acme.org'), { messages: 0 }, 'its statements are understood')
})

/** What stays of a message that was removed: as if it were a second one like this. */
function leaveTrace(folder: string, like: string, id: string): void {
  const database = new Sqlite(databasePath({ folder }), { timeout: 5_000 })
  database
    .prepare(
      `
    insert into traces (id, content_id, lane_id, recipient, ended_at)
    select ?, content_id, lane_id, recipient, 0 from messages where id = ?`,
    )
    .run(storedIdentifier('msg', id), storedIdentifier('msg', like))
  database.close()
}

/** Tables with a value that has this text in it. */
function rowsWith(folder: string, text: string): string[] {
  const database = new Sqlite(databasePath({ folder }), { readonly: true })
  const tables = database.prepare<[], string>(`select name from sqlite_schema where type = 'table'`).pluck().all()
  const found = tables.filter((table) =>
    database
      .prepare(`select * from ${table}`)
      .all()
      .some((row) =>
        Object.values(row as object).some((value: unknown) =>
          typeof value === 'string' ? value.includes(text) : Buffer.isBuffer(value) && value.includes(text),
        ),
      ),
  )
  database.close()
  return found
}
