/**
 * What a moved clock brings about, waited for: upkeep is run as often as it would have been, and nothing is under way
 * any more.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Appliance } from '../../src/appliance.ts'
import type { LeapingClock } from './leaping-clock.ts'

/** Looks in a row that find nothing under way: between a claim and its row there is a turn or two. */
const CALM_LOOKS = 3
const LOOK_EVERY_MILLISECONDS = 3

/** Jobs of warmup and shaping. */
export async function keepUp({ schedule }: Pick<Appliance, 'schedule'>): Promise<void> {
  await schedule.run('close-warmup-days')
  await schedule.run('check-warmup-gates')
  await schedule.run('keep-path-states')
}

/** Resolves when no message is under way; what waits for its time waits on. */
export async function untilCalm({ store, isAlive }: Pick<Appliance, 'store' | 'isAlive'>): Promise<void> {
  for (let calm = 0; calm < CALM_LOOKS;) {
    await sleep(LOOK_EVERY_MILLISECONDS)
    await isAlive()
    const { sending } = await store.queueSummary(0)
    calm = sending === 0 ? calm + 1 : 0
  }
}

interface Passing {
  parts: Appliance
  clock: Pick<LeapingClock, 'now' | 'leap'>
}

/** So much time passes, in steps. */
export async function passTime({ parts, clock }: Passing, milliseconds: number, step = milliseconds): Promise<void> {
  const end = clock.now() + milliseconds
  while (clock.now() < end) {
    clock.leap(Math.min(step, end - clock.now()))
    await keepUp(parts)
    await untilCalm(parts)
  }
}
