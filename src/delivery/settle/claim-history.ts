/**
 * What happened to recent claims, for the log line of a row that got lost: the last steps of all rows, in a ring.
 * Written with each step of each message, so it makes no object and no text. Pure; never throws.
 */
import type { Clock } from '../../base/clock.ts'
import type { RowClaim } from '../../store/records/claim-records.ts'

type ClaimStep =
  | 'claimed'
  | 'placed' // on this path
  | 'to thread'
  | 'result' // how the try ended
  | 'given back' // with this reason to wait
  | 'stored' // its outcome, or its return

type NotedStep = { at: number; claim: number; step: ClaimStep; detail: string | number | null }

export type ClaimHistory = ReturnType<typeof createClaimHistory>

/** Of some ten thousand messages: in memory 3 MiB. */
const MOST_STEPS = 2 ** 16

export function createClaimHistory(clock: Clock, most: number = MOST_STEPS) {
  const keys: number[] = []
  const claims: number[] = []
  const times: number[] = []
  const steps: ClaimStep[] = []
  const details: (string | number | null)[] = []
  let written = 0

  return {
    note(step: ClaimStep, { key, claim }: RowClaim, detail: string | number | null = null): void {
      const place = written++ % most
      keys[place] = key
      claims[place] = claim
      times[place] = clock.now()
      steps[place] = step
      details[place] = detail
    },
    /** What is still known of a row of the store, the oldest step first. */
    of(key: number): NotedStep[] {
      const found: NotedStep[] = []
      for (let index = Math.max(0, written - most); index < written; index++) {
        const place = index % most
        const step = steps[place]
        if (keys[place] !== key || step === undefined) continue
        found.push({ at: times[place] ?? 0, claim: claims[place] ?? 0, step, detail: details[place] ?? null })
      }
      return found
    },
  }
}
