/**
 * What becomes of one row when its try has ended: judged and recorded, or given back to the queue without an attempt;
 * shaping hears what the path said.
 *
 * Warmup allowance goes back with every try that ended before RCPT was written. Never throws. delivery/README.md
 * "Stages".
 */
import { MINUTE } from '../../base/clock.ts'
import { unreachable } from '../../base/errors.ts'
import type { Egress } from '../../egress/egress.ts'
import type { Shaping, TryNote } from '../../egress/shaping/shaping.ts'
import { createClassifier } from '../../mail/reply/classify-reply.ts'
import type { Grant } from '../../store/records/queue-records.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { PlacedRow } from '../place/placed-row.ts'
import { NO_CONNECTION, type TryEnd, type TryResult } from '../protocol/try-result.ts'
import type { NoHosts } from '../route/route-message.ts'
import { judgeDns } from './judge-dns.ts'
import { createJudgeReply, type JudgeReply, type JudgeRequest, type Judgement } from './judge-reply.ts'
import type { OutcomeRecorder } from './outcome-recorder.ts'
import { createRecordTry, type RecordTryOptions } from './record-try.ts'

export interface SettleRowOptions extends RecordTryOptions {
  egress: Pick<Egress, 'disable' | 'ipsUsedBy' | 'noteRefund'>
  shaping: Pick<Shaping, 'giveBack' | 'noteTry' | 'waitOf'>
  recorder: Pick<OutcomeRecorder, 'record' | 'recordLater' | 'giveBack'>
}

export interface SettleRow {
  settle(row: PlacedRow, result: TryResult): void
  settleDns(answer: NoHosts, message: ClaimedMessage): void
  /** A row that was not tried. */
  giveBack(row: PlacedRow, how: Omit<Parameters<OutcomeRecorder['giveBack']>[1], 'refund'>): void
  /** Nobody knows how far its try came. */
  giveBackUnheard(row: PlacedRow, isMarked: boolean): void
}

type Judged = JudgeRequest['end']

/** A message that could not be rendered or signed waits for somebody to look. */
const LOOK_AGAIN_AFTER = 5 * MINUTE

export function createSettleRow(options: SettleRowOptions): SettleRow {
  const { clock, logger, egress, shaping, configuration, recorder } = options
  const record = createRecordTry(options)
  let judge = judgeNow()
  configuration.onChange(() => {
    judge = judgeNow()
  })

  function judgeNow(): JudgeReply {
    const { server, bounces } = configuration.current()
    return createJudgeReply(server.delivery, createClassifier(bounces.rules))
  }

  function judgeRow({ message, route, facts, isProbe }: PlacedRow, end: Judged): Judgement {
    const { provider } = route.provider
    const pathWait = facts.shaped === null ? 0 : shaping.waitOf(facts.shaped)
    return judge({ end, message, now: clock.now(), provider, pathWait, isProbe })
  }

  function noteTry({ facts, lane }: PlacedRow, note: TryNote): void {
    if (facts.shaped !== null) shaping.noteTry(facts.shaped, lane, note)
  }

  function giveBack(row: PlacedRow, how: Parameters<SettleRow['giveBack']>[1], refund = row.grant): void {
    if (refund !== null) egress.noteRefund(refund.ip, refund.isp)
    recorder.giveBack(row.message, { ...how, ...(refund === null ? {} : { refund }) })
  }

  function giveBackReturned(row: PlacedRow, end: Extract<TryEnd, { kind: 'returned' }>, refund: Grant | null): void {
    if (end.why === 'source-gone' && row.ip !== null) egress.disable(row.ip.address, end.reason)
    if (end.why === 'not-renderable') {
      const { id, domain } = row.message
      logger.error({ message_id: id, domain, reason: end.reason }, 'message can not be rendered')
    }
    giveBack(row, { nextAt: dueAfter(row, end, clock.now()) }, refund)
  }

  return {
    settle(row, { end, facts, startedAt: at, durationMilliseconds, transcript, wasRcptSent }) {
      const refund = wasRcptSent ? null : row.grant
      if (end.kind === 'returned') {
        noteTry(row, { kind: 'neither' })
        // Of its message rate it has used nothing.
        if (row.facts.shaped !== null && !wasRcptSent) shaping.giveBack(row.facts.shaped, 1)
        return giveBackReturned(row, end, refund)
      }
      const judgement = judgeRow(row, end)
      noteTry(row, noteOf(end, judgement))
      const operator = row.route.provider
      const tried = { facts, at, durationMilliseconds, ip: row.ip?.address ?? null, operator, transcript, refund }
      record(row.message, tried, judgement)
    },
    settleDns(answer, message) {
      const at = clock.now()
      const jitter = configuration.current().server.delivery.retry_jitter
      const nothing = { facts: NO_CONNECTION, durationMilliseconds: 0, transcript: null, refund: null }
      record(message, { ...nothing, at, ip: null, operator: null }, judgeDns(answer, message, at, jitter))
    },
    giveBack: (row, how) => giveBack(row, how),
    giveBackUnheard(row, isMarked) {
      noteTry(row, { kind: 'neither' })
      const now = clock.now()
      const wait = configuration.current().server.delivery.uncertain_retry
      // Whether RCPT was sent is not known: the allowance stays spent.
      recorder.giveBack(row.message, isMarked ? { nextAt: now + wait, isPossibleDuplicate: true } : { nextAt: now })
    },
  }
}

/** When a row is due that came back without a result. */
function dueAfter({ message, ip }: PlacedRow, { why }: Extract<TryEnd, { kind: 'returned' }>, now: number): number {
  switch (why) {
    case 'stopping':
    case 'unmarked':
    // Somebody else has it, or it waits: then nothing comes of this.
    case 'stale':
      return now
    case 'source-gone':
      return ip === null ? now + LOOK_AGAIN_AFTER : now
    case 'not-renderable':
      return now + LOOK_AGAIN_AFTER
    case 'too-late':
      // Due at once if our clock was wrong and is set right again; never a claim that comes back again and again.
      return now < message.expiresAt ? message.expiresAt : message.acceptedAt
    default:
      return unreachable(why)
  }
}

/** What a row that came back says of its path. Failed connections speak for themselves. */
function noteOf(end: Judged, { category }: Judgement): TryNote {
  if (end.kind === 'accepted') return { kind: 'delivered' }
  if (end.kind !== 'refused' || category === null) return { kind: 'neither' }
  return { kind: 'refused', reply: end.reply, stage: end.stage, category }
}
