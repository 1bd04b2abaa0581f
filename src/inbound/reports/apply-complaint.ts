/**
 * A feedback report about one message -> what the store records of it (inbound/README.md "Complaints"); undefined for
 * what says nothing about the message.
 */
import { DAY } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import type { ReportReading } from '../../mail/report/report-reading.ts'
import type { ReportedFact, ReportResult } from '../../store/records/report-records.ts'
import type { Store } from '../../store/store.ts'

export interface ApplyComplaintOptions {
  store: Pick<Store, 'recordReport'>
  clock: Clock
}

const MOST_AGE = 90 * DAY
const NO_TYPE = 'abuse'

export function createApplyComplaint({
  store,
  clock,
}: ApplyComplaintOptions): (messageId: string, reading: ReportReading) => Promise<ReportResult | undefined> {
  return async (messageId, reading) => {
    const fact = factOf(reading)
    if (fact === undefined) return undefined
    const now = clock.now()
    return store.recordReport({ messageId, now, acceptedSince: now - MOST_AGE, fact })
  }
}

function factOf({ kind, feedbackType }: ReportReading): ReportedFact | undefined {
  if (kind === 'complaint') return { kind: 'complaint', feedbackType: feedbackType ?? NO_TYPE }
  if (feedbackType === 'opt-out') return { kind: 'opt-out' }
  if (feedbackType !== 'not-spam') return undefined
  return { kind: 'note', about: 'not-spam', description: 'the recipient says that it is no spam' }
}
