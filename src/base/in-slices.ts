/** Long work on the store goes in slices with a pause between them, so that nobody's mail waits for it. */
import { setTimeout as sleep } from 'node:timers/promises'

/** Rows of one slice: one to three milliseconds. A commit for fewer would cost as much as the work itself. */
const SLICE = 1_000
const PAUSE_MILLISECONDS = 5

/** Calls `work` with a number of rows until it says that nothing is left, or `most` rows are done. */
export async function inSlices(most: number, work: (limit: number) => Promise<boolean>): Promise<void> {
  for (let done = 0; done < most; done += SLICE) {
    if (!(await work(SLICE))) return
    await sleep(PAUSE_MILLISECONDS)
  }
}
