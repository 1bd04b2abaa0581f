/**
 * What keeps a message back, in the words of delivery/README.md "Why a message waits": the operator, the warmup or
 * share of its IPs, a rate, a suspension, connections, or no IP that sends. The caller says a plain retry delay and a
 * start time. Reads, changes nothing, never throws.
 */
import type { IpChoice } from '../../egress/ips/egress-ip.ts'
import type { Shaping } from '../../egress/shaping/shaping.ts'
import type { WaitingFor, WaitReason } from '../../mail/waiting-mail.ts'
import type { MessageView } from '../../store/records/lookup-records.ts'
import { CAPTURE_ROUTE, HELD_UNTIL, UNROUTED } from '../../store/records/queue-records.ts'
import type { ChoosePath } from '../place/choose-path.ts'
import { allBusy } from '../place/take-rows.ts'
import type { ClaimParts } from './claim-round.ts'
import type { KeyEntry } from './due-keys.ts'

type WhyWaitingOptions = ClaimParts & { shaping: Shaping; choosePath: ChoosePath; isFull: () => boolean }

/** For a reason that was stored without words. */
const SENTENCES: Readonly<Record<WaitingFor, string>> = {
  send_at: 'Its time has not come.',
  retry_delay: 'It waits for its next attempt.',
  warmup_day: 'The warming IPs of its pool have used up what they may send today.',
  warmup_hour: 'The warming IPs of its pool may send no more in this hour.',
  provider_share: 'The warming IPs of its pool have used up what they may send to this provider today.',
  rate: 'The rate at which its provider is sent mail is used up.',
  connections: 'All connections to its provider are in use.',
  sockets: 'This server has no socket or port free for a connection; it tries again in a few seconds.',
  suspension: 'Its provider takes no mail from the IPs of its pool for now.',
  ip_paused: 'No IP of its pool can send it now.',
  held: 'The operator holds it back.',
}

/** `busy`: only other mail is in its way; null: nothing is. */
type Chosen = { wait: Extract<IpChoice, { kind: 'wait' }> } | { busy: string | null }

export function createWhyWaiting(options: WhyWaitingOptions) {
  const { clock, shaping, egress, routes, capture, choosePath, gateOf, paths, isFull } = options

  /** Where no route is known, since the start or a reload, what the pool says holds: nothing else may ask for one. */
  function choose(message: MessageView): Chosen | undefined {
    const { isCaptured, recipientDomain } = message
    const route = isCaptured ? capture.routeOf(recipientDomain) : routes.last(recipientDomain)
    const attempts = message.attempts.filter(({ result }) => result !== 'path-failed').length
    const base = { ...message, attempts, keepIpUntil: null, avoidIps: [] }
    if (route === undefined) {
      const isp = message.isp ?? recipientDomain
      const found = egress.choose({ ...base, messageId: message.id, isp, families: [4, 6] }, () => ({ kind: 'open' }))
      return found.kind === 'wait' ? { wait: found } : undefined
    }
    const asked = { ...base, route: route.provider.route }
    const chosen = choosePath(asked, route)
    if (chosen.kind === 'wait') return { wait: chosen }
    const { facts } = chosen
    const gate = gateOf(facts, null)
    if (gate.kind === 'closed') return { wait: { ...gate, kind: 'wait' } }
    const isFree = paths.roomOf(facts, gate, message.stream === 'transactional') > 0
    if (isFree && !isFull()) return { busy: null }
    const held = facts.shaped === null ? [] : shaping.explain(facts.shaped, message)
    return { busy: [allBusy(facts.isp).text, ...held].join(' ') }
  }

  return (message: MessageView): WaitReason | undefined => {
    const { state, waitingFor, nextAttemptAt } = message
    if (!['queued', 'deferred', 'sending'].includes(state)) return undefined
    if (waitingFor === 'held') return reason('held', null)
    const now = clock.now()
    const isLater = nextAttemptAt !== null && nextAttemptAt > now
    const found = choose(message)
    const wait = found !== undefined && 'wait' in found ? found.wait : null
    // One that ends before the message's own time comes is none.
    if (wait !== null && (wait.until ?? Infinity) >= (isLater ? nextAttemptAt : now)) {
      return { waitingFor: wait.waitingFor, untilMilliseconds: wait.until, text: wait.text }
    }
    if (isLater) {
      const isOwn = waitingFor === null || waitingFor === 'retry_delay' || waitingFor === 'send_at'
      return isOwn ? undefined : reason(waitingFor, nextAttemptAt)
    }
    const busy = found !== undefined && 'busy' in found ? found.busy : null
    if (busy === null || state === 'deferred') return undefined
    return { waitingFor: 'connections', untilMilliseconds: null, text: busy }
  }
}

function reason(waitingFor: WaitingFor, untilMilliseconds: number | null): WaitReason {
  return { waitingFor, untilMilliseconds, text: SENTENCES[waitingFor] }
}

/**
 * How much waits, for whom and why, as the dispatcher remembers it: for acceptance, the statistics of an IP, metrics.
 * Counts of keys with very many rows are lower bounds until this process has accepted or sent them; a walk over the
 * keys corrects what is wrong.
 */
export function createQueueFigures({ directory, routes, egress, clock }: ClaimParts) {
  function ispOf({ route }: KeyEntry): string {
    if (route === UNROUTED) return ''
    const { isp, provider } = routes.behind(route)
    // A route whose domain nobody looked up since the start stands for itself.
    return provider === null && isp === route ? '' : isp
  }

  function reasonOf(entry: Readonly<KeyEntry>): WaitingFor {
    const { earliestAt, isDue, isRetry, waitingFor } = entry
    const closure = directory.closureOf(entry)
    if (closure !== null) return closure.waitingFor
    // In its turn.
    if (isDue || earliestAt <= clock.now()) return 'connections'
    if (earliestAt >= HELD_UNTIL) return 'held'
    return waitingFor ?? (isRetry ? 'retry_delay' : 'send_at')
  }

  return {
    /** First attempts that wait in a pool, by isp; '' for those whose provider is not known yet. */
    backlogOf(pool: string): Record<string, number> {
      const backlog: Record<string, number> = Object.create(null)
      for (const entry of directory.entries()) {
        if (entry.pool !== pool || entry.isRetry) continue
        const isp = ispOf(entry)
        backlog[isp] = (backlog[isp] ?? 0) + entry.waiting
      }
      return backlog
    },
    /** Messages that could leave from this IP, by isp and reason, most first. */
    waitingOf(ip: string) {
      const pools = egress.poolNames().filter((pool) => egress.ipsUsedBy(pool).some(({ address }) => address === ip))
      const counts = new Map<string, { isp: string; reason: WaitingFor; count: number }>()
      for (const entry of directory.entries()) {
        if (!pools.includes(entry.pool)) continue
        const [isp, reason] = [ispOf(entry), reasonOf(entry)]
        const known = counts.get(`${isp} ${reason}`)
        counts.set(`${isp} ${reason}`, { isp, reason, count: (known?.count ?? 0) + entry.waiting })
      }
      return [...counts.values()].toSorted((left, right) => right.count - left.count)
    },
    /** What waits in each pool, and since when the first of it is due; null: nothing is. */
    waitingByPool() {
      const pools = new Map<string, { waiting: number; dueSince: number | null }>()
      for (const { pool, route, waiting, earliestAt } of directory.entries()) {
        if (route === CAPTURE_ROUTE || waiting === 0) continue
        const known = pools.get(pool) ?? { waiting: 0, dueSince: null }
        const dueSince = earliestAt > clock.now() ? null : earliestAt
        known.waiting += waiting
        if (dueSince !== null) known.dueSince = Math.min(dueSince, known.dueSince ?? dueSince)
        pools.set(pool, known)
      }
      return pools
    },
    waitingByReason(): Partial<Record<WaitingFor, number>> {
      const counts: Partial<Record<WaitingFor, number>> = {}
      for (const entry of directory.entries()) {
        if (entry.route === CAPTURE_ROUTE) continue
        const reason = reasonOf(entry)
        counts[reason] = (counts[reason] ?? 0) + entry.waiting
      }
      return counts
    },
  }
}
