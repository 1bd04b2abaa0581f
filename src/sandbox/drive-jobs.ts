/**
 * Runs the upkeep jobs by application time: each at the times of its table, as the clock passes them.
 *
 * A job that came round several times while it ran, paused or time jumped runs once. After each run it pauses a moment
 * of real time, so that a fast clock does not make it run without end: at 1,440 times the speed a job of every five
 * seconds runs four times in a real second, and a daily one each minute. A job never overlaps itself.
 */
import { SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import type { Job, JobDriver } from '../base/job.ts'
import { nextRun } from './next-run.ts'

/** Real time. */
const PAUSE = SECOND / 4

export function driveJobs(jobs: readonly Job[], clock: Clock): JobDriver {
  const driven = jobs.map((job) => driveJob(job, clock))
  return { stop: async () => void (await Promise.all(driven.map((job) => job.stop()))) }
}

function driveJob({ when, run }: Job, clock: Clock): JobDriver {
  let running: Promise<void> = Promise.resolve()
  let cancel = (): void => {}
  let isStopped = false
  const waitFrom = (time: number): void => {
    if (isStopped) return
    cancel = clock.after(nextRun(when, time) - clock.now(), begin)
  }
  function begin(): void {
    const begunAt = clock.now()
    running = run().then(() => {
      const timer = setTimeout(() => waitFrom(begunAt), PAUSE)
      cancel = () => clearTimeout(timer)
    })
  }
  waitFrom(clock.now())
  return {
    async stop() {
      isStopped = true
      cancel()
      await running
      // What ran set the pause only now.
      cancel()
    },
  }
}
