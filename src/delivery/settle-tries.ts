/**
 * Rows in delivery threads, and what their results lead to: outcome, attempt, event and log line, or back to the queue.
 *
 * Each row that was begun is settled once: by its result, by the death of its thread, or at the stop. Engine.md 10.2.
 */
import { MINUTE } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorText, unreachable } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { Configuration } from '../config/load-configuration.ts'
import type { MailboxProvider } from '../egress/mailbox-provider.ts'
import type { Egress } from '../egress/pool.ts'
import { createClassifier } from '../mail/classify-reply.ts'
import type { ConnectionFacts, DeliveryAttempt } from '../mail/delivery-outcome.ts'
import type { ClaimedMessage } from '../store/records.ts'
import type { Store } from '../store/store.ts'
import { createAttemptLog } from './attempt-log.ts'
import { createJudgeAddress } from './judge-address.ts'
import { createJudgeReply } from './judge-reply.ts'
import type { JudgeRequest, Judgement } from './judge-reply.ts'
import type { OutcomeRecorder } from './outcome-recorder.ts'
import { eventsOf } from './outcome-events.ts'
import type { PathResult, Paths } from './paths.ts'
import type { PlacedRow } from './placed-row.ts'
import { judgeDns } from './route-message.ts'
import type { NoHosts } from './route-message.ts'
import { NO_CONNECTION } from './try-result.ts'
import type { TryEnd, TryResult } from './try-result.ts'

export interface SettleTries {
  /** These rows are in this thread now. */
  begin(rows: readonly PlacedRow[], thread: number): void
  settle(results: readonly TryResult[]): void
  /** Their path is left alone: they wait as long. */
  settleHeld(rows: readonly PlacedRow[]): void
  settleDns(answer: NoHosts, messages: readonly ClaimedMessage[]): void
  giveBackThread(thread: number): void
  giveBackWaiting(): void
  /** What is still in a thread has sent its dot, and nobody waits for the reply any more. Ends no message. */
  endUnanswered(): void
}

export interface SettleTriesOptions {
  store: Pick<Store, 'searchMessages'>
  clock: Clock
  logger: Logger
  metrics: Metrics
  egress: Egress
  configuration: Configuration
  recorder: OutcomeRecorder
  paths: Paths<PlacedRow>
  /** A path may take further rows. */
  onRoom: () => void
}

type Judged = JudgeRequest['end']

/** A try as far as it came. */
interface Tried {
  facts: ConnectionFacts
  at: number
  durationMilliseconds: number
  ip: string | null
  operator: MailboxProvider | null
  transcript: string | null
}

const HELD: Judged = {
  kind: 'path-failed', stage: 'connect', code: '4.4.1', wasTried: false,
  reason: 'the receiving hosts did not answer before; not tried again yet',
}

/** A message that could not be rendered or signed waits for somebody to look. */
const LOOK_AGAIN_AFTER = 5 * MINUTE

export function createSettleTries(options: SettleTriesOptions): SettleTries {
  const { clock, logger, metrics, egress, configuration, recorder, paths } = options
  const { delivery, log } = configuration.server
  const judge = createJudgeReply(delivery, createClassifier(configuration.bounces.rules))
  const judgeAddress = createJudgeAddress(options.store)
  const logTry = createAttemptLog({ logger, metrics, recipients: log.recipients })
  const inThread = new Map<number, { row: PlacedRow; thread: number }>()

  /** Everything that follows from a judgement. */
  function record(message: ClaimedMessage, tried: Tried, judgement: Judgement): void {
    const { facts, at, durationMilliseconds, ip, operator, transcript } = tried
    const { outcome, stage, reply } = judgement
    const attempt: DeliveryAttempt = { ...facts, at, durationMilliseconds, ip, result: outcome.kind, stage, reply }
    const isp = operator?.isp ?? null
    logTry({ message, attempt, judgement, provider: operator?.provider ?? null })
    const now = clock.now()
    const settled = {
      key: message.key, attempt, outcome, isp, transcript, events: eventsOf({ judgement, message, isp, now }),
    }
    const suppresses = judgeAddress(message, judgement, now)
    if (typeof suppresses === 'boolean') return recorder.record({ ...settled, suppresses })
    recorder.recordLater(suppresses.catch(notKnown).then((isDead) => ({ ...settled, suppresses: isDead })))
  }

  /** The outcome matters more than what follows from it. */
  function notKnown(thrown: unknown): false {
    logger.error({ error: errorText(thrown) }, 'earlier bounces of an address could not be read')
    return false
  }

  function settleRow(row: PlacedRow, result: TryResult): void {
    const { end, facts, startedAt, durationMilliseconds } = result
    const { message, route, ip, plan } = row
    paths.settle(plan.key, pathResult(end))
    if (end.kind === 'returned') return giveBack(row, end)
    const { transcript } = result
    const tried = {
      facts, at: startedAt, durationMilliseconds, ip: ip?.address ?? null, operator: route.provider, transcript,
    }
    record(message, tried, judgeRow(row, end))
  }

  function judgeRow({ message, route, plan }: PlacedRow, end: Judged): Judgement {
    const { provider } = route.provider
    return judge({ end, message, now: clock.now(), provider, pathWait: paths.waitOf(plan.key) })
  }

  const noTry = (): Omit<Tried, 'ip' | 'operator'> =>
    ({ facts: NO_CONNECTION, at: clock.now(), durationMilliseconds: 0, transcript: null })

  function giveBack({ ip, message }: PlacedRow, { why, reason }: Extract<TryEnd, { kind: 'returned' }>): void {
    switch (why) {
      case 'stopping':
        return recorder.giveBack(message.key, clock.now())
      case 'source-gone':
        if (ip === null) return recorder.giveBack(message.key, clock.now() + LOOK_AGAIN_AFTER)
        egress.disable(ip.address, reason)
        return recorder.giveBack(message.key, clock.now())
      case 'not-renderable':
        logger.error({ message_id: message.id, domain: message.domain, reason }, 'message can not be rendered')
        return recorder.giveBack(message.key, clock.now() + LOOK_AGAIN_AFTER)
      default:
        unreachable(why)
    }
  }

  return {
    begin(rows, thread) {
      for (const row of rows) inThread.set(row.key, { row, thread })
    },
    settle(results) {
      for (const result of results) {
        const found = inThread.get(result.key)
        if (found === undefined) continue
        inThread.delete(result.key)
        settleRow(found.row, result)
      }
      options.onRoom()
    },
    settleHeld(rows) {
      for (const row of rows) {
        const { message, ip, route } = row
        record(message, { ...noTry(), ip: ip?.address ?? null, operator: route.provider }, judgeRow(row, HELD))
      }
    },
    settleDns(answer, messages) {
      for (const message of messages) {
        const judgement = judgeDns(answer, message, clock.now(), delivery.retry_jitter)
        record(message, { ...noTry(), ip: null, operator: null }, judgement)
      }
    },
    giveBackThread(thread) {
      const rows = [...inThread.values()].filter((entry) => entry.thread === thread).map(({ row }) => row)
      for (const { key, plan } of rows) {
        inThread.delete(key)
        paths.settle(plan.key, { kind: 'neither' })
        recorder.giveBackFromDead(key)
      }
      metrics.leasesRecovered.inc(rows.length)
      logger.warn({ thread, messages: rows.length }, 'messages taken back from a delivery thread')
      options.onRoom()
    },
    giveBackWaiting() {
      for (const { key } of paths.takeWaiting()) recorder.giveBack(key, clock.now())
    },
    endUnanswered() {
      for (const { row } of inThread.values()) {
        inThread.delete(row.key)
        // A second lost answer would end it, and this one was not waited for.
        if (row.message.ambiguousCount > 0) {
          recorder.giveBackFromDead(row.key)
          continue
        }
        const end: TryEnd = { kind: 'unanswered', reason: 'the server stopped before the answer came' }
        const nothing = { durationMilliseconds: 0, facts: NO_CONNECTION, transcript: null }
        settleRow(row, { ...nothing, key: row.key, startedAt: clock.now(), end })
      }
    },
  }
}

function pathResult(end: TryEnd): PathResult {
  switch (end.kind) {
    case 'accepted':
    case 'unanswered':
    case 'unacceptable':
      return { kind: 'worked' }
    case 'refused':
      return end.reply.code === 421 ? { kind: 'failed', reason: end.reply.text } : { kind: 'worked' }
    case 'path-failed':
      return end.wasTried ? { kind: 'failed', reason: end.reason } : { kind: 'neither' }
    case 'lost':
    case 'expired':
    case 'returned':
      return { kind: 'neither' }
    default:
      return unreachable(end)
  }
}
