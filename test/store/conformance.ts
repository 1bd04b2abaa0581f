/**
 * What every store engine must do: the promises of `src/store/store.ts` and of ContentReader as tests.
 *
 * Each case gets an empty store of its own from `makeStore`. Nothing in the cases knows which engine it is.
 */
import t, { type Test } from 'tap'
import { accepting, claiming } from './accepting-cases.ts'
import { certificates } from './certificate-cases.ts'
import { clock } from './clock-cases.ts'
import type { Cases, StoreUnderTest } from './conformance-case.ts'
import { domainChecks, domains, removal } from './domain-cases.ts'
import { engagement, unsubscribing } from './engagement-cases.ts'
import { idempotency } from './idempotency-cases.ts'
import { ips, outboundTls } from './ip-cases.ts'
import { console } from './console-cases.ts'
import { apiKeys } from './key-cases.ts'
import { leases } from './lease-cases.ts'
import { acting, batches, repeating } from './message-cases.ts'
import { expiry, outcomes } from './outcome-cases.ts'
import { keys, operating, routing, upkeep } from './queue-cases.ts'
import { searching } from './search-cases.ts'
import { suppressing, suppressionList } from './suppression-cases.ts'
import { closing, webhooks } from './webhook-cases.ts'

// Many cases, each with a store of its own to open: a slow machine only makes it longer.
t.setTimeout(600_000)

/** Runs every case; `makeStore` gets the test of the case, for its cleanup. */
export function testStoreConformance(makeStore: (t: Test) => Promise<StoreUnderTest>): void {
  const groups: Record<string, Cases> = {
    accepting,
    certificates,
    clock,
    idempotency,
    suppressing,
    suppressionList,
    claiming,
    keys,
    routing,
    operating,
    upkeep,
    leases,
    outcomes,
    expiry,
    acting,
    repeating,
    batches,
    searching,
    engagement,
    unsubscribing,
    webhooks,
    apiKeys,
    console,
    ips,
    outboundTls,
    domains,
    domainChecks,
    removal,
    closing,
  }
  for (const [group, cases] of Object.entries(groups)) {
    t.test(group, async (t) => {
      for (const [name, run] of Object.entries(cases)) {
        await t.test(name, async (t) => run(t, await makeStore(t)))
      }
    })
  }
}
