/**
 * `sternpost domain check --wait`: has a domain checked again and again until it is verified or the time is over.
 *
 * Ends at once for a suspended domain, which no check changes. What `verify` throws is passed on.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import type { DomainView } from '../../senders/domain-view.ts'

interface WaitOptions {
  clock: Clock
  mostMilliseconds: number
  verify: () => Promise<DomainView>
  /** Called after each check that was not the last one. */
  onCheck: (domain: DomainView) => void
}

/** Above the 10 s within which the server repeats its last answer (http/README.md "Domains"). */
const CHECK_EVERY = 15 * SECOND

export async function waitUntilVerified(options: WaitOptions): Promise<DomainView> {
  const { clock, mostMilliseconds, verify, onCheck } = options
  const end = clock.now() + mostMilliseconds
  for (;;) {
    const domain = await verify()
    const left = end - clock.now()
    if (domain.status === 'verified' || domain.status === 'suspended' || left <= 0) return domain
    onCheck(domain)
    await new Promise<void>((resolve) => clock.after(Math.min(CHECK_EVERY, left), resolve))
  }
}
