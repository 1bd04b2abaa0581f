/**
 * What happened to messages, by hour and day (http/README.md "Statistics"). The sums are made from the events by a job
 * each minute; a question first waits until they hold what has happened before it, in short transactions, so that
 * nobody's mail waits. Throws ServiceError `invalid_request` for a span that cannot be answered.
 */
import { DAY, HOUR, SECOND, type Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { inSlices } from '../../base/in-slices.ts'
import type { Reach } from '../../mail/reach.ts'
import type {
  StatisticsDimension,
  StatisticsPart,
  StatisticsPlace,
  StatisticsQuery,
  StatisticsRow,
} from '../../store/records/statistics-records.ts'
import { StatisticsSums } from '../../store/statistics-sums.ts'
import type { Store } from '../../store/store.ts'

interface AskedStatistics {
  dimension: StatisticsDimension | null
  interval: 'hour' | 'day'
  /** Unix seconds; null: seven days ago, and now. */
  after: number | null
  before: number | null
}

export type Statistics = ReturnType<typeof createStatistics>

const DEFAULT_SPAN = 7 * DAY
const MOST_ROWS = 10_000
/** A question waits for so many at most; the job goes on with the rest, and has some seconds for it. */
const MOST_SUMMED_FIRST = 50_000
const MOST_SUMMED_BY_JOB = 1_000_000

export function createStatistics({ store, clock }: { store: Store; clock: Clock }) {
  const sum = (most: number) => inSlices(most, (limit) => store.sumStatistics(limit))
  return {
    /** The job. */
    sum: () => sum(MOST_SUMMED_BY_JOB),
    async find({ dimension, interval, ...span }: AskedStatistics, reach: Reach): Promise<StatisticsRow[]> {
      const before = span.before === null ? clock.now() + 1 : span.before * SECOND
      const after = span.after === null ? before - DEFAULT_SPAN : span.after * SECOND
      if (after >= before) throw new ServiceError('invalid_request', 'after: must lie before `before`')
      await sum(MOST_SUMMED_FIRST)
      const step = interval === 'hour' ? HOUR : DAY
      const past = { hour: Math.floor(after / step) * step, name: '', domain: '' }
      // Every message counts once by its domain.
      const asked = { dimension: dimension ?? 'domain', isNamed: dimension !== null, step, past, before }
      const sums = new StatisticsSums()
      for (const isTest of reach.isTest === null ? [false, true] : [reach.isTest]) {
        await addAll(sums, { ...asked, isTest, domains: reach.domains })
      }
      return sums.rows()
    },
  }

  async function addAll(sums: StatisticsSums, query: StatisticsQuery): Promise<void> {
    for (let past: StatisticsPlace | null = query.past; past !== null;) {
      const part: StatisticsPart = await store.statistics({ ...query, past })
      for (const row of part.rows) sums.add(row)
      past = part.next
      if (sums.size <= MOST_ROWS) continue
      throw new ServiceError('invalid_request', `more than ${MOST_ROWS} rows: ask for a shorter span, or by day`)
    }
  }
}
