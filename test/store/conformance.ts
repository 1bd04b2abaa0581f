/**
 * What every store engine must do: the promises of `src/store/store.ts` and of ContentReader as tests.
 *
 * Each case gets an empty store of its own from `makeStore`. Nothing in the cases knows which engine it is.
 */
import t from 'tap'
import type { Test } from 'tap'
import { accepting, claiming } from './accepting-cases.ts'
import type { Cases, StoreUnderTest } from './conformance-case.ts'
import { domainChecks, domains, removal } from './domain-cases.ts'
import { expiry, outcomes } from './outcome-cases.ts'
import { senders, webhooks } from './webhook-cases.ts'

/** Runs every case; `makeStore` gets the test of the case, for its cleanup. */
export function testStoreConformance(makeStore: (t: Test) => Promise<StoreUnderTest>): void {
  const groups: Record<string, Cases> = {
    accepting, claiming, outcomes, expiry, webhooks, senders, domains, domainChecks, removal,
  }
  for (const [group, cases] of Object.entries(groups)) {
    t.test(group, async (t) => {
      for (const [name, run] of Object.entries(cases)) {
        await t.test(name, async (t) => run(t, await makeStore(t)))
      }
    })
  }
}
