/**
 * Waits for a condition with a deadline: the tests' only way to wait.
 */
import { setTimeout as sleep } from 'node:timers/promises'

const LOOK_EVERY_MILLISECONDS = 5
/** Far more than any wait takes, also on a machine that is slow and busy: it only ends what would never come. */
const DEADLINE_MILLISECONDS = 60_000

/** Resolves with the first value that is neither undefined, null nor false; fails with `what` at the deadline. */
export async function until<Value>(
  what: string,
  look: () => Value | Promise<Value>,
  deadlineMilliseconds = DEADLINE_MILLISECONDS,
): Promise<Exclude<Value, undefined | null | false>> {
  const end = performance.now() + deadlineMilliseconds
  for (;;) {
    const value = await look()
    if (isThere(value)) return value
    if (performance.now() > end) throw new Error(`not within ${deadlineMilliseconds} ms: ${what}`)
    await sleep(LOOK_EVERY_MILLISECONDS)
  }
}

function isThere<Value>(value: Value): value is Exclude<Value, undefined | null | false> {
  return value !== undefined && value !== null && value !== false
}
