/**
 * What the store thread tells of each commit: for metrics, and how long commits take now. The mean since the start would
 * hide for weeks that a disk has become slow.
 */
import { SECOND } from '../../base/clock.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { CommitReport } from './group-commit.ts'

/** So many tell of a disk, and not of one flush. */
const NEWEST_COMMITS = 100

type CommitMetrics = Pick<Metrics, 'storeBatchSize' | 'storeCommitSeconds' | 'storeMessagesPerCommit'>

export function createCommitTimes(metrics: CommitMetrics) {
  const newest: number[] = []
  return {
    hear({ verbs, messages, seconds }: CommitReport): void {
      metrics.storeBatchSize.observe(verbs)
      metrics.storeCommitSeconds.observe(seconds)
      if (messages > 0) metrics.storeMessagesPerCommit.observe(messages)
      newest.push(seconds * SECOND)
      if (newest.length > NEWEST_COMMITS) newest.shift()
    },
    meanMilliseconds(): number | null {
      if (newest.length === 0) return null
      return newest.reduce((sum, milliseconds) => sum + milliseconds, 0) / newest.length
    },
  }
}
