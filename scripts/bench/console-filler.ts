/**
 * A database with so many delivered messages of the last 30 days, each with a content, a subject and tags of its own,
 * written through the store's verbs.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import type { Store } from '../../src/store/store.ts'
import { claimMessages } from '../../test/support/claim-messages.ts'
import { SENDING_DOMAIN } from '../../test/support/two-ips.ts'
import { locationIn, openTestStore } from '../../test/store/sqlite-support.ts'
import { acceptRequest, delivered, outcomeRecord, sampleContent } from '../../test/store/store-samples.ts'
import type { TellProgress } from './growth-progress.ts'

const DAY = 86_400_000
const DAYS = 30
const AT_ONCE = 100
const ROUNDS = 240
const SLICE = 5_000
const PAGE_CACHE = 64 * 1_048_576
const PROVIDERS = ['gmail', 'outlook', 'yahoo', 'other']

export const recipientOf = (number: number): string => `reader-${number}@dest.test`
export const subjectOf = (number: number): string => `Your order ${number} is on its way`
export const tagOf = (number: number): string => `campaign:week-${number % 50}`

/** Into `folder`/data. */
export async function fillDatabase(folder: string, count: number, tell: TellProgress): Promise<void> {
  const { store } = await openTestStore(locationIn(folder, { pageCacheBytes: PAGE_CACHE }))
  const beginning = Date.now() - DAYS * DAY
  const { epoch } = await store.beginEpoch(beginning, beginning)
  const perRound = Math.ceil(count / ROUNDS)
  for (let first = 0; first < count; first += perRound) {
    const now = beginning + Math.floor((first / count) * DAYS * DAY)
    await accept(store, now, first, Math.min(perRound, count - first))
    await deliver(store, epoch, now)
    if (Math.floor(first / 100_000) !== Math.floor((first - perRound) / 100_000))
      tell(`${first} of ${count} messages are stored`)
  }
  while (await store.sumStatistics(SLICE));
  while (await store.indexSubjects(SLICE));
  await store.close()
}

async function accept(store: Store, now: number, first: number, count: number): Promise<void> {
  let next = first
  const client = async (): Promise<void> => {
    while (next < first + count) {
      const number = next++
      const content = {
        ...sampleContent,
        from: { name: null, address: `shop@${SENDING_DOMAIN}` },
        subject: subjectOf(number),
        hasVariables: false,
        tags: { campaign: `week-${number % 50}` },
      }
      const message = {
        id: newIdentifier('msg', now),
        to: { name: null, address: recipientOf(number) },
        recipientDomain: 'dest.test',
        variables: {},
        expiresAt: now + 3 * DAY,
        isCaptured: false,
      }
      await store.acceptMessages(acceptRequest({ now, domain: SENDING_DOMAIN, content, messages: [message] }))
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
}

async function deliver(store: Store, epoch: number, now: number): Promise<void> {
  for (;;) {
    const terms = { now: now + 1, epoch, leaseUntil: now + DAY, pools: ['default'], limit: SLICE }
    const claimed = await claimMessages(store, terms)
    if (claimed.length === 0) return
    const outcomes = claimed.map((message, index) => {
      const record = outcomeRecord(message, delivered, { at: now + 2, ip: '127.0.1.11' })
      const events = record.events.map((event) => ({ ...event, at: now + 2 }))
      return { ...record, isp: PROVIDERS[index % PROVIDERS.length] ?? '', events }
    })
    await store.recordOutcomes({ epoch, now: now + 2, outcomes })
  }
}
