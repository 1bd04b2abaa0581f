/**
 * What attempts led to and what came later, for the statistics and gates of IPs (http/README.md "IP statistics",
 * egress/README.md "Gates"). Counted is what left this host: not captured and simulated mail, not what the suppression
 * list held back. What comes later counts for the IP of the last attempt, at the time when it came.
 */
import type { Database } from '../../engine/database.ts'
import { unreachable } from '../../../base/errors.ts'
import type { BounceCategory } from '../../../mail/reply/bounce-category.ts'
import type { BounceType } from '../../../mail/reply/delivery-outcome.ts'
import { CAPTURE_POOL } from '../../../mail/simulator.ts'
import type { SmtpStage } from '../../../mail/reply/smtp-reply.ts'
import type { IpCounter } from '../../records/warmup-records.ts'
import type { OutcomeRecord } from '../../records/claim-records.ts'
import { createIpSums, OTHER_ISPS, type IpSums } from './ip-counters.ts'
import { createCountKeeper } from './waiting-counts.ts'
import { createWarmupSums, type WarmupSums } from './warmup-counters.ts'
import { ask, oneColumn } from '../tools/statements.ts'

/** An attempt is a try that reached MAIL FROM (src/README.md "Words"). */
const ATTEMPT_STAGES: readonly SmtpStage[] = ['mail', 'rcpt', 'data', 'dot']
/** First attempts put off for these speak against the IP (egress/README.md "Gates"). */
const HARMFUL_DEFERRALS: readonly BounceCategory[] = ['rate', 'ip_block', 'domain_block', 'policy']

const BOUNCE_COUNTERS = {
  hard: 'bouncedHard',
  soft: 'bouncedSoft',
  block: 'bouncedBlock',
  undetermined: 'bouncedUndetermined',
} as const satisfies Record<Exclude<BounceType, 'suppressed'>, IpCounter>

/** Returns the statistics of one verb. */
export function createOutcomeStatistics(database: Database) {
  const beginKeeping = createCountKeeper(database)
  const askFirstTried = createAskFirstTried(database)

  return (now: number, outcomes: readonly OutcomeRecord[]) => {
    const keep = beginKeeping(
      now,
      outcomes.flatMap(({ attempt: { ip, at } }) => (ip === null ? [] : [{ ip, at }])),
    )
    const ips = createIpSums()
    const warmup = createWarmupSums()
    const sentAt = new Map<string, number>()
    return {
      /** Before the outcome is written: asks when the message was first tried from this IP; null: it was not. */
      askFirstTried({ key, attempt }: OutcomeRecord, hasAttempts: boolean): () => number | null {
        if (!hasAttempts || attempt.ip === null) return () => null
        const found = askFirstTried(key, attempt.ip)
        return () => found() ?? null
      },
      /** `firstAt`: what was asked before. */
      add(record: OutcomeRecord, { firstAt: before, isCounted }: { firstAt: number | null; isCounted: boolean }): void {
        const { ip, at, stage, durationMilliseconds } = record.attempt
        if (!isCounted || ip === null) return
        const isp = record.isp ?? OTHER_ISPS
        const isAttempt = ATTEMPT_STAGES.includes(stage)
        const firstAt = isAttempt ? Math.min(before ?? at, at) : (before ?? at)
        const isFirstHere = isAttempt && firstAt === at
        const where = { ip, isp, at: at + Math.round(durationMilliseconds) }
        if (isAttempt) ips.add(where, isFirstHere ? ['attempts', 'messages'] : ['attempts'])
        countOutcome(ips, record, where, isAttempt)
        countForGates(warmup, record, { ip, isp, at: firstAt }, isFirstHere)
        if (isAttempt) sentAt.set(ip, Math.max(at, sentAt.get(ip) ?? 0))
      },
      flush: (): void => keep({ hours: ips.list(), ...warmup.lists(), sent: [...sentAt] }),
    }
  }
}

interface Where {
  ip: string
  isp: string
  at: number
}

/** `where.at`: the end of the try. */
function countOutcome(ips: IpSums, { outcome, attempt }: OutcomeRecord, where: Where, isAttempt: boolean): void {
  switch (outcome.kind) {
    case 'delivered':
      ips.add(where, ['delivered'], attempt.durationMilliseconds)
      return
    case 'deferred':
    case 'ambiguous':
      if (isAttempt) ips.add(where, ['deferred'])
      return
    case 'bounced':
    case 'expired': {
      const { type } = outcome.bounce
      if (type !== 'suppressed') ips.add(where, [BOUNCE_COUNTERS[type]])
      return
    }
    case 'path-failed':
      return
    default:
      unreachable(outcome)
  }
}

/** `where.at`: when the message was first tried from the IP. */
function countForGates(warmup: WarmupSums, record: OutcomeRecord, where: Where, isFirstHere: boolean): void {
  const { outcome, category, attempt } = record
  if (isFirstHere) {
    warmup.addToDay(where, 'firstAttempts')
    warmup.addToSlot(where, 'firstAttempts')
  }
  if (category === 'ip_block') warmup.addToSlot({ ip: where.ip, at: attempt.at }, 'blocks')
  if (outcome.kind === 'delivered') {
    warmup.addToDay(where, 'delivered')
    warmup.addToSlot(where, 'delivered')
  } else if (outcome.kind === 'deferred') {
    if (isFirstHere && category !== null && HARMFUL_DEFERRALS.includes(category)) warmup.addToDay(where, 'deferred')
  } else if (outcome.kind === 'bounced' || outcome.kind === 'expired') {
    const { type } = outcome.bounce
    if (type !== 'suppressed') warmup.addToDay(where, type)
    if (type === 'hard') warmup.addToSlot(where, 'hard')
  }
}

/** When a message was first tried from this IP; undefined: never before. */
function createAskFirstTried(database: Database): (messageKey: number, ip: string) => () => number | undefined {
  const find = oneColumn(database)<[number, string], number>(`
    select at
    from attempts
    where message_seq = ? and ip = ? and stage in ('mail', 'rcpt', 'data', 'dot')
    order by at
    limit 1`)
  return (messageKey, ip) => {
    const rows = ask(find, messageKey, ip)
    return () => rows()[0]
  }
}

export function createEventStatistics(database: Database) {
  const beginKeeping = createCountKeeper(database)
  const askFirstTried = createAskFirstTried(database)
  const findMessage = createSentMessages(database)

  return () => {
    const ips = createIpSums()
    const warmup = createWarmupSums()
    const count = (messageKey: number, at: number, counter: IpCounter): { ip: string; isp: string } | undefined => {
      const message = findMessage(messageKey)
      if (message !== undefined) ips.add({ ...message, at }, [counter])
      return message
    }
    return {
      /** Without an attempt: by a report after the delivery, or by the end of its lifetime. */
      bounced(messageKey: number, type: BounceType, now: number, after?: 'delivery'): void {
        if (type === 'suppressed') return
        const message = count(messageKey, now, BOUNCE_COUNTERS[type])
        const firstAt = message === undefined ? undefined : askFirstTried(messageKey, message.ip)()
        if (message === undefined || firstAt === undefined) return
        const where = { ...message, at: firstAt }
        warmup.addToDay(where, type)
        if (after === 'delivery') warmup.addToDay(where, 'delivered', -1)
        if (type === 'hard') warmup.addToSlot(where, 'hard')
      },
      complained(messageKey: number, now: number): void {
        const message = count(messageKey, now, 'complained')
        if (message === undefined) return
        warmup.addToDay({ ...message, at: now }, 'complained')
        warmup.addToSlot({ ...message, at: now }, 'complained')
      },
      opened: (messageKey: number, at: number) => void count(messageKey, at, 'opened'),
      clicked: (messageKey: number, at: number) => void count(messageKey, at, 'clicked'),
      flush: (now: number): void => beginKeeping(now)({ hours: ips.list(), ...warmup.lists(), sent: [] }),
    }
  }
}

/** IP and provider of a message that left this host; undefined for any other. */
function createSentMessages(database: Database): (messageKey: number) => { ip: string; isp: string } | undefined {
  const find = database.prepare<[number, string], { ip: string; isp: string | null }>(`
    select messages.last_ip as ip, messages.isp
    from messages
    cross join pools on pools.pool_id = messages.pool_id
    where messages.seq = ? and messages.last_ip is not null and pools.name <> ?`)
  return (messageKey) => {
    const row = find.get(messageKey, CAPTURE_POOL)
    return row === undefined ? undefined : { ip: row.ip, isp: row.isp ?? OTHER_ISPS }
  }
}
