/**
 * Memory and size of the database, looked at each minute, and whether they are flat.
 *
 * All threads collect their garbage before each look: what is left then is in use, or leaked. The process has least when
 * the last of them has done so: that counts. Judged is the stretch without restarts: from a third of the run, at most ten
 * minutes, to before its last sixth; the restarts before it end at half of that third. Memory is flat when the line
 * through its values rises by no more than MEMORY_MARGIN over the stretch. The file holds every message for the days of
 * `retention`, so it cannot stop to grow: it is flat when a message of the stretch costs no more bytes than
 * DATABASE_MARGIN times one of before.
 */
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { until } from '../../test/support/until.ts'
import type { Left } from './collect-garbage.ts'
import type { SoakScene } from './scene.ts'

export interface Look {
  /** Minutes since the start. */
  minute: number
  memory: number
  /** Objects of each thread, and what they hold outside. */
  inUse: number[]
  /** The file and its log. */
  database: number
  messages: number
}

export const MEMORY_MARGIN = 32 * 2 ** 20
export const DATABASE_MARGIN = 1.5
const LONGEST_SETTLING = 10
const MINUTES_OF_HOUR = 60
const COLLECTED_WITHIN = 3_000
/** A line through fewer values says nothing. */
const LEAST_LOOKS = 3

export function judgedStretch(minutes: number): { from: number; to: number } {
  return { from: Math.min(LONGEST_SETTLING, minutes / 3), to: (minutes * 5) / 6 }
}

export async function look({ server, ledger, collectFile }: SoakScene, minute: number): Promise<Look> {
  rmSync(`${collectFile}.left`, { force: true })
  writeFileSync(collectFile, String(minute))
  await sleep(COLLECTED_WITHIN)
  await until('a thread has collected its garbage', () => existsSync(`${collectFile}.left`))
  const lines = readFileSync(`${collectFile}.left`, 'utf8').trimEnd().split('\n')
  const left = lines.map((line) => JSON.parse(line) as Left).toSorted((one, other) => one.thread - other.thread)
  const sizes = ['sternpost.db', 'sternpost.db-wal'].map((name) =>
    Number(statSync(join(server.databaseFolder, name), { throwIfNoEntry: false })?.size ?? 0),
  )
  const database = sizes.reduce((sum, size) => sum + size, 0)
  const memory = Math.min(...left.map((each) => each.memory))
  return { minute, memory, inUse: left.map((each) => each.inUse), database, messages: ledger.accepted.size }
}

export interface Growth {
  memoryPerHour: number
  databasePerHour: number
  bytesPerMessage: { before: number; during: number }
  faults: string[]
}

/** null: the run is too short to say. */
export function judgeGrowth(looks: readonly Look[], minutes: number): Growth | null {
  const { from, to } = judgedStretch(minutes)
  const stretch = looks.filter(({ minute }) => minute >= from && minute < to)
  const [first] = stretch
  const last = stretch.at(-1)
  const [start] = looks
  if (stretch.length < LEAST_LOOKS || first === undefined || last === undefined || start === undefined) return null
  const length = last.minute - first.minute
  const memorySlope = slopeOf(stretch.map(({ minute, memory }) => [minute, memory]))
  const before = (first.database - start.database) / (first.messages - start.messages)
  const during = (last.database - first.database) / (last.messages - first.messages)
  const faults: string[] = []
  if (memorySlope * length > MEMORY_MARGIN) faults.push(`memory rose by ${Math.round(memorySlope * length)} bytes`)
  if (during > before * DATABASE_MARGIN)
    faults.push(`a message takes ${during} bytes of the database, before ${before}`)
  return {
    memoryPerHour: memorySlope * MINUTES_OF_HOUR,
    databasePerHour: slopeOf(stretch.map(({ minute, database }) => [minute, database])) * MINUTES_OF_HOUR,
    bytesPerMessage: { before, during },
    faults,
  }
}

/** Of the line with the least squares. */
export function slopeOf(points: readonly (readonly [x: number, y: number])[]): number {
  const mean = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length
  const [meanX, meanY] = [mean(points.map(([x]) => x)), mean(points.map(([, y]) => y))]
  const top = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0)
  const below = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0)
  return below === 0 ? 0 : top / below
}
