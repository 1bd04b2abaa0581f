/**
 * Waits for a condition with a deadline: the tests' only way to wait.
 */
import { setTimeout as sleep } from 'node:timers/promises'

/** Between two looks: a tenth of the time so far, within these. What looks often takes time from what it waits for. */
const LEAST_PAUSE_MILLISECONDS = 5
const MOST_PAUSE_MILLISECONDS = 25
/** Far more than any wait takes, also on a machine that is slow and busy: it only ends what would never come. */
const DEADLINE_MILLISECONDS = 60_000

/** Resolves with the first value that is neither undefined, null nor false; fails with `what` at the deadline. */
export async function until<Value>(
  what: string,
  look: () => Value | Promise<Value>,
  deadlineMilliseconds = DEADLINE_MILLISECONDS,
): Promise<Exclude<Value, undefined | null | false>> {
  const startedAt = performance.now()
  for (;;) {
    const value = await look()
    if (isThere(value)) return value
    const waited = performance.now() - startedAt
    if (waited > deadlineMilliseconds) throw new Error(`not within ${deadlineMilliseconds} ms: ${what}`)
    await sleep(Math.min(MOST_PAUSE_MILLISECONDS, Math.max(LEAST_PAUSE_MILLISECONDS, waited / 10)))
  }
}

function isThere<Value>(value: Value): value is Exclude<Value, undefined | null | false> {
  return value !== undefined && value !== null && value !== false
}
