/** What happened to messages, by hour: sums that are made from the events behind them. */
export const STATISTICS_COUNTERS = [
  'accepted',
  'delivered',
  'deferred',
  'bounced',
  'complained',
  'opened',
  'clicked',
  'machineOpened',
  'machineClicked',
  'suppressed',
  'canceled',
  'unsubscribed',
] as const

export type StatisticsCounter = (typeof STATISTICS_COUNTERS)[number]
export type StatisticsDimension = 'domain' | 'tag' | 'pool' | 'provider' | 'ip'

/** Where a walk through the sums is: behind this row. */
export interface StatisticsPlace {
  hour: number
  name: string
  domain: string
}

export interface StatisticsQuery {
  isTest: boolean
  dimension: StatisticsDimension
  /** Names are told apart; false: all together, as ''. */
  isNamed: boolean
  /** Hours of a row, in milliseconds. */
  step: number
  past: StatisticsPlace
  /** Unix milliseconds; not in it. */
  before: number
  /** Empty: all. */
  domains: readonly string[]
}

export interface StatisticsRow extends Record<StatisticsCounter, number> {
  name: string
  /** Beginning of the step (UTC), Unix milliseconds. */
  at: number
}

export interface StatisticsPart {
  rows: StatisticsRow[]
  /** Where the next part begins; null: this was the last. Its rows may go on with those of this part. */
  next: StatisticsPlace | null
}

export interface StatisticsVerbs {
  /**
   * Adds up to `limit` events that are not in the sums yet, each once, also when the server is killed. Returns whether
   * there may be more.
   */
  sumStatistics(limit: number): Promise<boolean>
  /** A part of the sums, in order of time: the rows of some milliseconds' work. */
  statistics(query: StatisticsQuery): Promise<StatisticsPart>
  /** Returns how many rows went. */
  forgetStatistics(before: number, limit: number): Promise<number>
}
