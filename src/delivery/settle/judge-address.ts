/**
 * Whether the end of a message puts its address onto the suppression list: a decision of its own (mail/README.md "Three
 * decisions").
 *
 * Only a bounce that calls the address dead does. A rule of bounces.yaml with `suppress: second` says less: the address
 * needs such an end twice within 30 days, at least 24 h apart. As an address with any other hard bounce gets no mail
 * any more, an earlier one can only have been of that kind. Simulated recipients are never put there (http/README.md
 * "Simulated recipients").
 */
import { DAY } from '../../base/clock.ts'
import { isSimulated } from '../../mail/simulator.ts'
import type { ClaimedMessage } from '../../store/records/records.ts'
import type { Store } from '../../store/store.ts'
import type { Judgement } from './judge-reply.ts'

export type JudgeAddress = (message: ClaimedMessage, judgement: Judgement, now: number) => boolean | Promise<boolean>

const SECOND_WITHIN = 30 * DAY
const SECOND_AFTER = DAY
/** Of an address that gets more mail than this within 30 days only the last ends are looked at. */
const MOST_LOOKED_AT = 100

/** Answers at once but for the rare rule that needs the history; rejects when the store does. */
export function createJudgeAddress(store: Pick<Store, 'searchMessages'>): JudgeAddress {
  async function isSecond(recipient: string, now: number): Promise<boolean> {
    const { messages } = await store.searchMessages({
      recipient,
      now,
      state: 'bounced',
      since: now - SECOND_WITHIN,
      limit: MOST_LOOKED_AT,
      from: null,
      batchId: null,
      tag: null,
      isp: null,
      ip: null,
      until: null,
      domains: null,
      after: null,
    })
    return messages.some(({ bounce }) => bounce?.type === 'hard' && now - bounce.at >= SECOND_AFTER)
  }

  return ({ recipient, recipientDomain }, { outcome, suppress }, now) => {
    if (outcome.kind !== 'bounced' || isSimulated(recipientDomain)) return false
    return suppress === 'second' ? isSecond(recipient, now) : suppress === 'always'
  }
}
