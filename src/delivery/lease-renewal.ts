/**
 * Each minute: renews the leases of the rows that memory truly holds, and looks for rows in nobody's hand.
 *
 * A row that nobody holds is not renewed: if the look does not find it either, its lease lapses and the store frees it.
 * An error of the store is logged; a lease lasts for many renewals. store/README.md "Leases and claims".
 */
import { MINUTE } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { DispatcherParts } from './dispatcher-parts.ts'
import type { Holders } from './holders.ts'
import type { Orphans } from './orphans.ts'

export type LeaseRenewal = ReturnType<typeof createLeaseRenewal>

type LeaseRenewalOptions = Pick<DispatcherParts, 'store' | 'realClock' | 'logger' | 'lease'> & {
  holders: Holders
  orphans: Pick<Orphans, 'look'>
}

const RENEW_EVERY = MINUTE
/** Rows of one verb: a few milliseconds of the store. */
const MOST_PER_RENEWAL = 500

export function createLeaseRenewal(options: LeaseRenewalOptions) {
  const { store, realClock, logger, lease, holders, orphans } = options
  let cancel = (): void => {}
  let isStopped = false

  async function renew(): Promise<void> {
    const rows = Array.from(holders().values(), ({ message: { key, claim } }) => ({ key, claim }))
    for (let first = 0; first < rows.length && !isStopped; first += MOST_PER_RENEWAL) {
      const { epoch, leaseUntil } = lease()
      await store.renewLeases(epoch, rows.slice(first, first + MOST_PER_RENEWAL), leaseUntil)
    }
  }

  function wait(): void {
    cancel = realClock.after(RENEW_EVERY, () => {
      void orphans.look()
      renew().catch(tellFailure)
      wait()
    })
  }

  function tellFailure(thrown: unknown): void {
    if (!isStopped) logger.error({ error: errorText(thrown) }, 'leases could not be renewed')
  }

  return {
    start: wait,
    stop(): void {
      isStopped = true
      cancel()
    },
  }
}
