/**
 * Threads that give way: where the processors are all busy, an app that waits for its answer goes before mail that
 * waits in the queue. Linux keeps a nice value for each thread (sched(7)); elsewhere, or where that is forbidden,
 * nothing changes. Never throws.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'

const TASKS = '/proc/self/task'
/** sched(7): a ninth of the processor time of a thread that does not give way, when both want all of it. */
const NICER_BY = 10
const NICEST = 19

/** Compared with the calling thread as it was; `names`: of threads as the system shows them, as that of a Worker. */
export function giveWay(names: readonly string[]): void {
  const priority = Math.min(NICEST, getPriority() + NICER_BY)
  for (const task of tasks()) {
    try {
      if (names.includes(readFileSync(`${TASKS}/${task}/comm`, 'utf8').trim())) setPriority(Number(task), priority)
    } catch {
      // Ended meanwhile, or forbidden.
    }
  }
}

function tasks(): string[] {
  try {
    return readdirSync(TASKS)
  } catch {
    return []
  }
}
