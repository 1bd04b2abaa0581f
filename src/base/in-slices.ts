/** Long work on the store goes in slices with a pause between them, so that nobody's mail waits for it. */
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Rows of one slice: two to three milliseconds in SQLite, some twelve in PostgreSQL, both within what one group of verbs
 * may work. The commit of a few hundred would cost nearly as much as their work.
 */
const SLICE = 1_000
const PAUSE_MILLISECONDS = 5

/** Calls `work` with a number of rows until it says that nothing is left, or `most` rows are done. */
export async function inSlices(most: number, work: (limit: number) => Promise<boolean>): Promise<void> {
  for (let done = 0; done < most; done += SLICE) {
    if (!(await work(SLICE))) return
    await sleep(PAUSE_MILLISECONDS)
  }
}
