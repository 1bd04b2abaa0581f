/**
 * The `Action` field of a delivery status report, in the words that real servers use for it (RFC 3464 §2.3.3).
 */
import { REPORT_ACTIONS } from './report-reading.ts'
import type { ReportAction } from './report-reading.ts'

/** Words that are no value of the standard. */
const SYNONYMS: Readonly<Record<string, ReportAction>> = {
  failure: 'failed',
  fail: 'failed',
  permanent: 'failed',
  hardfail: 'failed',
  expired: 'failed',
  error: 'failed',
  delay: 'delayed',
  deferred: 'delayed',
  temporary: 'delayed',
  delivery: 'delivered',
  success: 'delivered',
  expand: 'expanded',
  relay: 'relayed',
}

/** Undefined for what no server is known to write. */
export function reportedAction(value: string): ReportAction | undefined {
  // The first word.
  const word = /[a-z]+/.exec(value.toLowerCase())?.[0] ?? ''
  return REPORT_ACTIONS.find((action) => action === word) ?? SYNONYMS[word]
}
