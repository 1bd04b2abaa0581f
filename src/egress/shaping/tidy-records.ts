/**
 * Lets go what is over, and forgets what says nothing any more: of paths, lanes and IPs (egress/README.md "Shaping").
 */
import { DAY, HOUR } from '../../base/clock.ts'
import type { ProviderLimits, ProviderSettings } from '../../config/settings/provider-settings.ts'
import { newBackOff } from './back-off.ts'
import { forgetConcurrency, isAsNew } from './concurrency.ts'
import { newLadder, stepAt } from './ladder.ts'
import { limitNow } from './path-limits.ts'
import { normalLimits, type PathRecord, type ShapingRecord, type ShapingRecords } from './records.ts'
import { forgetOldMatches } from './reply-rules.ts'
import { recentBlocks } from './heed-replies.ts'

/** Longer than any threshold of a shipped rule reaches, and than any idle path is of interest. */
const FORGOTTEN_AFTER = DAY
const IDLE_PATH_FORGOTTEN_AFTER = HOUR

/** `onChange`: what is stored of the record may be out of date. */
export function tidyRecords(
  records: ShapingRecords,
  settings: ProviderSettings,
  now: number,
  onChange: (record: ShapingRecord) => void,
): void {
  for (const [key, record] of records.paths) {
    settlePath(record, normalLimits(record, settings), now)
    const idleFor = now - record.concurrency.usedAt
    if (idleFor <= IDLE_PATH_FORGOTTEN_AFTER) continue
    forgetConcurrency(record.concurrency, now, idleFor > FORGOTTEN_AFTER)
    if (saysNothing(record)) records.paths.delete(key)
    onChange(record)
  }
  for (const [key, record] of records.lanes) {
    forgetOldMatches(record.counts, now - FORGOTTEN_AFTER)
    settleLadder(record, now)
    if (!isFree(record) || record.counts.size > 0) continue
    records.lanes.delete(key)
    onChange(record)
  }
  for (const [key, record] of records.ips) {
    settleLadder(record, now)
    record.blocks = recentBlocks(record, now)
    if (!isFree(record) || record.blocks.length > 0 || record.heldProviders.size > 0) continue
    records.ips.delete(key)
    onChange(record)
  }
}

function settlePath(record: PathRecord, normal: ProviderLimits, now: number): void {
  forgetOldMatches(record.counts, now - FORGOTTEN_AFTER)
  settleLadder(record, now)
  for (const [rule, limit] of record.replyLimits) {
    if (limitNow(limit, normal, now) === null) record.replyLimits.delete(rule)
  }
  const { backOff } = record
  const isStale = backOff.step > 0 && backOff.until < now - FORGOTTEN_AFTER
  if (isStale) record.backOff = { ...newBackOff(), hasWorked: backOff.hasWorked }
}

function settleLadder(record: ShapingRecord, now: number): void {
  const { ladder } = record
  if (ladder.suspension === null && ladder.step > 0 && stepAt(ladder, now) === 0) record.ladder = newLadder()
}

function isFree({ ladder }: ShapingRecord): boolean {
  return ladder.step === 0 && ladder.suspension === null
}

function saysNothing(record: PathRecord): boolean {
  const { concurrency, backOff, replyLimits, counts } = record
  return isFree(record) && backOff.failures === 0 && replyLimits.size === 0 && counts.size === 0 && isAsNew(concurrency)
}
