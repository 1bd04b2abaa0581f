/** Adds up rows of statistics that have the same name and time. */
import { STATISTICS_COUNTERS, type StatisticsRow } from './records/statistics-records.ts'

export class StatisticsSums {
  readonly #rows = new Map<string, StatisticsRow>()

  get size(): number {
    return this.#rows.size
  }

  add(row: StatisticsRow): void {
    const key = `${row.at} ${row.name}`
    const sum = this.#rows.get(key)
    if (sum === undefined) this.#rows.set(key, { ...row })
    else for (const counter of STATISTICS_COUNTERS) sum[counter] += row[counter]
  }

  /** By time, then by name. */
  rows(): StatisticsRow[] {
    return [...this.#rows.values()].sort((left, right) => left.at - right.at || compareText(left.name, right.name))
  }
}

const compareText = (left: string, right: string): number => (left < right ? -1 : Number(left > right))
