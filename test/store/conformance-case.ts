/**
 * What the cases of the conformance suite get, and a claim as several of them use it.
 */
import type { Test } from 'tap'
import type { ContentReader } from '../../src/store/content-reader.ts'
import type { Store } from '../../src/store/store.ts'
import type { ClaimWebhooksRequest } from '../../src/store/records/webhook-records.ts'
import { LEASE, NOW } from './store-samples.ts'

export interface StoreUnderTest {
  store: Store
  contentReader(): Promise<ContentReader>
}

/** By their names, which are sentences. Each gets an empty store of its own. */
export type Cases = Record<string, (t: Test, tested: StoreUnderTest) => Promise<void>>

export function webhookClaim(epoch: number, now = NOW): ClaimWebhooksRequest {
  return { now, epoch, leaseUntil: now + LEASE, limit: 100, perEndpoint: 100, busy: {} }
}
