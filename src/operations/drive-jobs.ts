/**
 * Runs jobs at the times of their time tables. A job that came round several times while it ran, or while the machine
 * slept or its clock was set, runs once, then pauses a moment of real time, so that a fast clock does not make it run
 * without end. A job never runs beside itself. Throws for a text that is no time table.
 */
import cron from 'node-cron'
import { DAY, HOUR, MINUTE, SECOND, type Clock } from '../base/clock.ts'

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

/** Real time. */
const PAUSE = SECOND / 4

/**
 * node-cron reads the tables. Its own timetable goes through every time that passed by: behind a clock that leapt a
 * year it holds this thread for minutes.
 */
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
    const at = nextRun(when, time)
    cancel = clock.after(at - clock.now(), () => begin(at))
  }
  function begin(at: number): void {
    const now = clock.now()
    // A timer may come a moment early: its time is not another one then.
    const begunAt = Math.max(now, Math.min(at, now + SECOND))
    running = run().then(() => {
      const timer = setTimeout(() => waitFrom(Math.min(begunAt, clock.now())), PAUSE)
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

/** The 29th of February comes round within 8 years. */
const LONGEST_SEARCH = 9 * 366 * DAY

/**
 * When a time table in cron's form comes round next, in UTC, after a time; both in Unix milliseconds. When both days are
 * restricted, either may hold, as in crontab(5). Throws for a text that is no time table, or one that never comes round.
 */
export function nextRun(timeTable: string, after: number): number {
  const fields = readFields(timeTable)
  let time = (Math.floor(after / SECOND) + 1) * SECOND
  while (time <= after + LONGEST_SEARCH) {
    const wrong = stepToNext(fields, time)
    if (wrong === null) return time
    time = wrong
  }
  throw new Error(`the time table ${JSON.stringify(timeTable)} never comes round`)
}

interface Fields {
  second: readonly number[]
  minute: readonly number[]
  hour: readonly number[]
  isDay: (date: Date) => boolean
}

/** null when the time is in the table, else the beginning of the next unit that may be. */
function stepToNext({ second, minute, hour, isDay }: Fields, time: number): number | null {
  const date = new Date(time)
  if (!isDay(date)) return nextStart(time, DAY)
  if (!hour.includes(date.getUTCHours())) return nextStart(time, HOUR)
  if (!minute.includes(date.getUTCMinutes())) return nextStart(time, MINUTE)
  return second.includes(date.getUTCSeconds()) ? null : time + SECOND
}

/** In UTC days, hours and minutes are all equally long. */
function nextStart(time: number, unit: number): number {
  return (Math.floor(time / unit) + 1) * unit
}

function readFields(timeTable: string): Fields {
  const { second, minute, hour, dayOfMonth, month, dayOfWeek } = cron.parse(timeTable)
  const [weekday, , day] = timeTable.trim().split(/\s+/).toReversed()
  const isRestricted = day !== '*' && weekday !== '*'
  return {
    second,
    minute,
    hour,
    isDay(date) {
      if (!month.includes(date.getUTCMonth() + 1)) return false
      const isInMonth = dayOfMonth.includes(date.getUTCDate())
      const isInWeek = dayOfWeek.includes(date.getUTCDay())
      return isRestricted ? isInMonth || isInWeek : isInMonth && isInWeek
    },
  }
}
