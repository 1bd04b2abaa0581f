/**
 * A bounce, a notice or a complaint about one message -> what the store records of it (mail/README.md "Reading a
 * report", inbound/README.md "Complaints"). It is judged by the same rules as a reply in the dialogue. The recipient is
 * that of our row, never the one the report names. Throws SmtpRefusal 451 when the delivery itself is still being
 * recorded, so that the report comes again.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { DAY, type Clock } from '../../base/clock.ts'
import { domainToAscii } from '../../mail/address.ts'
import { withoutTokens } from '../../mail/reply/smtp-reply.ts'
import { bounceFor, type ClassifyReply, type Suppression } from '../../mail/reply/classify-reply.ts'
import type { Bounce } from '../../mail/reply/delivery-outcome.ts'
import { isOptOut } from '../../mail/report/feedback-report.ts'
import { judgeReported } from '../../mail/report/judge-report.ts'
import type { ReportedRecipient, ReportReading } from '../../mail/report/report-reading.ts'
import type { ReportedFact, ReportResult } from '../../store/records/report-records.ts'
import type { Store } from '../../store/store.ts'
import { smtpRefusal } from '../smtp-refusal.ts'

export interface ApplyParts {
  settings: { inbound: { token_max_age: number } }
  store: Pick<Store, 'lookupMessage' | 'recordReport'>
  classify: ClassifyReply
  clock: Clock
}

const RECORDED_AFTER_MILLISECONDS = 100
/** Five seconds: a delivery is recorded within milliseconds of its last reply, while the store is well. */
const MOST_TRIES = 50
/** Complaints come later than bounces do. */
const MOST_COMPLAINT_AGE = 90 * DAY
/** How much of an address an answer ends. */
const BLAME: Record<Suppression, number> = { never: 0, second: 1, always: 2 }
const NO_REASON = 'the receiving server reported later that it could not deliver the message'

/** `providerOf` gives the id of the provider with this `isp` name, or null. */
export function createApplyReport(
  { settings, store, classify, clock }: ApplyParts,
  providerOf: (isp: string | null) => string | null,
) {
  async function record(messageId: string, fact: ReportedFact): Promise<ReportResult> {
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const now = clock.now()
      const result = await store.recordReport({ messageId, now, sentSince: now - settings.inbound.token_max_age, fact })
      if (result.kind !== 'under-way') return result
      await sleep(RECORDED_AFTER_MILLISECONDS)
    }
    throw smtpRefusal(451, '4.3.0 the delivery of this message is not recorded yet, try again later')
  }

  return {
    /** `bounce` is null for a notice. */
    async applyBounce(
      messageId: string,
      reading: ReportReading,
    ): Promise<{ result: ReportResult; bounce: Bounce | null }> {
      const message = await store.lookupMessage(messageId, clock.now())
      if (message === null) return { result: { kind: 'unknown-message' }, bounce: null }
      const told = reportedOf(reading, message.recipient)
      const failed = told.filter(({ action }) => action === 'failed')
      if (reading.kind === 'notice' || (told.length > 0 && failed.length === 0)) {
        const about = told[0]?.action ?? 'delayed'
        const fact: ReportedFact = { kind: 'note', about, description: withoutTokens(told[0]?.diagnostic ?? '') }
        return { result: await record(messageId, fact), bounce: null }
      }
      const judged = failed.flatMap((each) => judgeReported(each, classify, providerOf(message.isp)) ?? [])
      const [judgement] = judged.toSorted((one, other) => BLAME[one.suppress] - BLAME[other.suppress])
      const bounce =
        judgement === undefined
          ? bounceFor('unknown', null, NO_REASON)
          : { ...bounceFor(judgement.category, judgement.reply, NO_REASON), type: judgement.bounceType }
      // An address that became several is dead when all of them are.
      const suppress = failed.length === told.length ? (judgement?.suppress ?? 'never') : 'never'
      const fact: ReportedFact = { kind: 'bounce', bounce, suppress }
      return { result: await record(messageId, fact), bounce }
    },
    /** A feedback report (inbound/README.md "Complaints"); undefined for what says nothing about the message. */
    async applyComplaint(messageId: string, reading: ReportReading): Promise<ReportResult | undefined> {
      const fact = complaintFact(reading)
      if (fact === undefined) return undefined
      const now = clock.now()
      return store.recordReport({ messageId, now, sentSince: now - MOST_COMPLAINT_AGE, fact })
    },
  }
}

/**
 * What a report says of the recipient of our message: where it names nobody, or that address. Else the address stands
 * for others, as a list does: all that is said of them, and the mildest counts.
 */
function reportedOf({ recipients, unnamed }: ReportReading, own: string): readonly ReportedRecipient[] {
  if (unnamed !== null) return [{ ...unnamed, address: own }]
  const isOwn = (address: string | null): boolean => address !== null && inOneForm(address) === inOneForm(own)
  const named = recipients.filter(({ address, finalRecipient }) => isOwn(address) || isOwn(finalRecipient))
  return named.length > 0 ? named : recipients
}

/** A report of RFC 6533 has the domain in Unicode. */
function inOneForm(address: string): string {
  const at = address.lastIndexOf('@') + 1
  return `${address.slice(0, at)}${domainToAscii(address.slice(at)) ?? address.slice(at)}`.toLowerCase()
}

function complaintFact({ kind, feedbackType }: ReportReading): ReportedFact | undefined {
  if (kind === 'complaint') return { kind: 'complaint', feedbackType: feedbackType ?? 'abuse' }
  if (isOptOut(feedbackType)) return { kind: 'opt-out' }
  if (feedbackType !== 'not-spam') return undefined
  return { kind: 'note', about: 'not-spam', description: 'the recipient says that it is no spam' }
}
