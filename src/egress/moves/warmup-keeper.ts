/**
 * What happens to the state of an IP by itself: days that are closed, gates that pause, pauses that end, IPs that were
 * idle for long (egress/README.md "Warmup days" and "Gates").
 *
 * A day is closed with the first grant or look of a later one. Each IP is looked after on its own: what fails for one
 * is logged and tried again with the next look.
 */
import type { KnownIp } from '../ips/known-ip.ts'
import { firstOpenDay } from '../warmup/warmup-days.ts'
import { createDayClosing, type DayClosing } from './day-closing.ts'
import { createGateWatch, type BlockNote } from './gate-watch.ts'
import { createHalts, type Halts } from './halts.ts'
import type { IpParts } from '../ips/ip-parts.ts'

export interface WarmupKeeper extends Pick<Halts, 'suspend'>, Pick<DayClosing, 'rewarmStage'> {
  /** First look, and a timer for pauses and suspensions that end. */
  start(): Promise<void>
  stop(): Promise<void>
  /** Each minute: ends what has ended, closes days, re-warms idle IPs, tries disabled ones. */
  look(): Promise<void>
  /** Before a grant. */
  closeOpenDays(ips: readonly string[]): Promise<void>
  /** Every 5 min: the gates of the last hour. */
  checkGates(): Promise<void>
  noteBlock(block: BlockNote): void
}

export function createWarmupKeeper(parts: IpParts): WarmupKeeper {
  const { registry, allowance, clock, logger } = parts
  const underWay = new Set<Promise<unknown>>()
  const days = createDayClosing(parts)
  const gates = createGateWatch(parts)
  const halts = createHalts(parts, () => void guarded(halts.end, null))

  /** Never rejects. */
  function guarded(work: () => Promise<unknown>, ip: string | null): Promise<void> {
    const done = work().then(
      () => {},
      (thrown: unknown) => {
        logger.error({ ip, err: thrown }, 'egress IP not looked after')
      },
    )
    underWay.add(done)
    return done.finally(() => underWay.delete(done))
  }

  async function closeNow(address: string): Promise<void> {
    const known = registry.find(address)
    if (known !== undefined) await days.close(known)
  }

  async function look(): Promise<void> {
    await guarded(registry.refresh, null)
    await guarded(registry.tryDisabled, null)
    await guarded(halts.end, null)
    for (const known of registry.known()) {
      const { address } = known.ip
      await guarded(() => days.rewarmIdle(known), address)
      await guarded(() => closeNow(address), address)
    }
    await guarded(allowance.refresh, null)
  }

  return {
    async start() {
      await look()
      halts.startTimer()
    },
    async stop() {
      halts.stopTimer()
      await Promise.all(underWay)
    },
    look,
    async closeOpenDays(ips) {
      const isOpen = ({ record }: KnownIp): boolean => firstOpenDay(record, clock.now()) !== null
      for (const address of new Set(ips)) {
        const known = registry.find(address)
        if (known !== undefined && isOpen(known)) await days.close(known)
      }
    },
    async checkGates() {
      for (const known of registry.known()) await guarded(() => gates.check(known), known.ip.address)
    },
    noteBlock(block) {
      const reason = gates.countBlock(block)
      if (reason !== undefined) void guarded(() => gates.pause(block.ip, reason), block.ip)
    },
    suspend: halts.suspend,
    rewarmStage: days.rewarmStage,
  }
}
