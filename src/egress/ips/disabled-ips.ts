/**
 * The IPs that nothing leaves from because of this machine: a source that cannot be bound, or one that was given up.
 *
 * An IP whose source cannot be bound is disabled as `unplumbed` and used again as soon as it can. One that is disabled
 * for another reason, though it can be bound, is used again after half an hour. Another source is never taken in its
 * place (delivery/README.md "The SMTP session").
 */
import { MINUTE } from '../../base/clock.ts'
import type { EgressOutside } from './outside.ts'

interface Disabled {
  reason: string
  since: number
  /** The bind test has failed since: it is free to come back as soon as one succeeds. */
  isUnplumbed: boolean
}

/** How long an IP that can be bound stays disabled. */
const DISABLED_FOR = 30 * MINUTE

export function createDisabledIps({ clock, canBind, logger }: EgressOutside) {
  const disabled = new Map<string, Disabled>()
  const bound = new Set<string>()

  function disable(address: string, reason: string, isUnplumbed: boolean): void {
    disabled.set(address, { reason, since: clock.now(), isUnplumbed })
    logger.warn({ ip: address, reason }, 'egress IP disabled')
  }

  return {
    /** Null: it is not disabled. */
    reasonOf: (address: string): string | null => disabled.get(address)?.reason ?? null,
    isBindable: (address: string): boolean => disabled.get(address)?.isUnplumbed !== true,
    disable: (address: string, reason: string): void => disable(address, reason, false),
    /** Tests those that were not tested yet. */
    async test(ips: readonly { address: string; source: string }[]): Promise<void> {
      const untested = ips.filter(({ address, source }) => !bound.has(source) && !disabled.has(address))
      const answers = await Promise.all(untested.map(({ source }) => canBind(source)))
      untested.forEach(({ address, source }, index) => {
        if (answers[index] === true) bound.add(source)
        else disable(address, 'unplumbed', true)
      })
    },
    /** True: one is used again. `sourceOf`: undefined for an IP that left the files, which is tested when it is back. */
    async tryAgain(sourceOf: (address: string) => string | undefined): Promise<boolean> {
      let isOneBack = false
      await Promise.all(
        [...disabled].map(async ([address, entry]) => {
          const source = sourceOf(address)
          if (source === undefined) return void disabled.delete(address)
          if (!(await canBind(source))) entry.isUnplumbed = true
          else if (entry.isUnplumbed || clock.now() - entry.since >= DISABLED_FOR) {
            disabled.delete(address)
            isOneBack = true
            bound.add(source)
            logger.info({ ip: address, reason: entry.reason }, 'egress IP used again')
          }
        }),
      )
      return isOneBack
    },
  }
}
