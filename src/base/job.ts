/** Upkeep jobs and what runs them at their times. */

export interface Job {
  name: string
  /** As cron writes it, in UTC. */
  when: string
  /** Never rejects. */
  run: () => Promise<void>
}

export interface JobDriver {
  /** No job starts any more; resolves when running ones have ended. */
  stop(): Promise<void>
}
