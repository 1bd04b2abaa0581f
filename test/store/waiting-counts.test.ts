/**
 * Counts of IPs on their way into the sums: none is lost or counted twice wherever a kill comes, a day of warmup counts
 * from its first grant on, and whoever reads sums gets an answer whatever happens to what waits.
 */
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { HOUR } from '../../src/base/clock.ts'
import { utcDay } from '../../src/base/utc-day.ts'
import { databasePath, openDatabase } from '../../src/store/sqlite/engine/database.ts'
import { createIpSums } from '../../src/store/verbs/ips/ip-counters.ts'
import { createAddWaitingCounts, createCountKeeper } from '../../src/store/verbs/ips/waiting-counts.ts'
import type { SqliteLocation } from '../../src/store/store-location.ts'
import type { Store } from '../../src/store/store.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { acceptRequest, claim, delivered, newMessage, NOW, outcomeRecord } from './store-samples.ts'
import { ask, IP, ipRecord } from './warmup-samples.ts'

const PER_VERB = 3

/** One verb that counts: so many messages, each to a provider of its own. */
async function deliverSome(store: Store, epoch: number, messages = PER_VERB): Promise<void> {
  await store.acceptMessages(acceptRequest({ messages: Array.from({ length: messages }, () => newMessage()) }))
  const outcomes = (await claim(store, epoch, NOW, messages)).map((message, index) => ({
    ...outcomeRecord(message, delivered, { ip: IP, at: NOW }),
    isp: `isp-${index}`,
  }))
  await store.recordOutcomes({ epoch, now: NOW, outcomes })
}

/** Runs SQL beside the store, which is closed. */
function change(location: SqliteLocation, sql: string): void {
  const database = new Sqlite(databasePath(location))
  database.exec(sql)
  database.close()
}

const waitingIn = (location: SqliteLocation): unknown => {
  const database = new Sqlite(databasePath(location), { readonly: true })
  const count = database.prepare('select count(*) from waiting_counts').pluck().get()
  database.close()
  return count
}

t.test('after a kill every sum is there, whatever waited', async (t) => {
  const folder = t.testdir({})
  const location = locationIn(folder)
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const { epoch } = await store.beginEpoch(NOW, NOW)
  await store.addIpRecords([ipRecord()])
  await store.reserveAllowance(ask(NOW, 1))
  const waited: unknown[] = []
  for (let verbs = 1; verbs <= 72; verbs += 1) {
    await deliverSome(store, epoch)
    if (![1, 63, 64, 72].includes(verbs)) continue
    // The files as they are now: what a kill would leave.
    const copy = locationIn(join(folder, `after-${verbs}`))
    cpSync(location.folder, copy.folder, { recursive: true })
    waited.push(waitingIn(copy))
    const restarted = (await openTestStore(copy)).store
    const messages = verbs * PER_VERB
    // The second time nothing waits any more.
    for (let time = 0; time < 2; time += 1) {
      const { hours, isps } = await restarted.ipStatistics(IP, NOW, NOW + HOUR)
      t.match(hours, [{ messages, delivered: messages }])
      t.same(
        isps.map((isp) => isp.messages),
        Array.from({ length: PER_VERB }, () => verbs),
      )
      const days = await restarted.warmupDays(IP, utcDay(NOW))
      t.match(
        days.find(({ isp }) => isp === '*'),
        { firstAttempts: messages, delivered: messages },
      )
      t.match(await restarted.ipHealth(IP, NOW), { firstAttempts: messages })
      t.match(await restarted.ipRecords(), [{ lastSentAt: NOW }])
    }
    await restarted.close()
  }
  t.same(waited, [1, 63, 0, 8])
})

t.test('what was sent before the first grant of a day does not count for it', async (t) => {
  const { store } = await openTestStore(locationIn(t.testdir({})))
  t.teardown(() => store.close())
  const { epoch } = await store.beginEpoch(NOW, NOW)
  await deliverSome(store, epoch)
  await store.reserveAllowance(ask(NOW, 2, { isp: 'isp-0' }))
  await deliverSome(store, epoch, 2)
  const days = await store.warmupDays(IP, utcDay(NOW))
  t.same(
    days.map(({ isp, firstAttempts, delivered: arrived }) => [isp, firstAttempts, arrived]),
    [
      ['*', 2, 2],
      ['isp-0', 1, 1],
    ],
  )
  t.match((await store.ipStatistics(IP, NOW, NOW + HOUR)).hours, [{ messages: PER_VERB + 2 }], 'statistics count all')
})

t.test('a read waits for what was counted before it, not for what comes meanwhile', async (t) => {
  const location = locationIn(t.testdir({}))
  await (await openTestStore(location)).store.close()
  change(
    location,
    `
    create trigger more after delete on waiting_counts
    begin insert into waiting_counts (counts) values (old.counts); end`,
  )
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  const { epoch } = await store.beginEpoch(NOW, NOW)
  await deliverSome(store, epoch)
  await deliverSome(store, epoch)
  t.ok((await store.ipDays(IP, 1))[0], 'answered')
  t.ok(Number(waitingIn(location)) > 0, 'others wait still')
})

t.test('what cannot be added is left out of reads, but no day is judged without it', async (t) => {
  const location = locationIn(t.testdir({}))
  const first = (await openTestStore(location)).store
  await deliverSome(first, (await first.beginEpoch(NOW, NOW)).epoch)
  t.match(await first.ipDays(IP, 1), [{ messages: PER_VERB }])
  await first.close()
  change(
    location,
    `
    create trigger full before delete on waiting_counts begin select raise(abort, 'database or disk is full'); end`,
  )
  const { store } = await openTestStore(location)
  t.teardown(() => store.close())
  await deliverSome(store, (await store.beginEpoch(NOW, NOW)).epoch)
  t.match(await store.ipDays(IP, 1), [{ messages: PER_VERB }])
  t.match((await store.ipStatistics(IP, NOW, NOW + HOUR)).hours, [{ messages: PER_VERB }])
  t.equal((await store.reportSums(NOW)).sent, 0, 'of no IP that is known')
  await t.rejects(store.warmupDays(IP, utcDay(NOW)), /disk is full/)
})

t.test('many sums are added in parts: verbs of others wait for one part', async (t) => {
  const opened = openDatabase(locationIn(t.testdir({})))
  t.teardown(() => opened.close())
  const keep = createCountKeeper(opened.writer)
  const addSome = createAddWaitingCounts(opened.writer)
  for (let verb = 0; verb < 8; verb += 1) {
    const sums = createIpSums()
    for (let isp = 0; isp < 50; isp += 1) sums.add({ ip: IP, isp: `isp-${verb}-${isp}`, at: NOW }, ['messages'])
    keep(NOW)({ hours: sums.list(), days: [], slots: [], sent: [] })
  }
  t.same([addSome(), addSome(), addSome()], [3, 0, 0])
})
