/**
 * Whether a path takes messages now, and how many: the question asked for each candidate of each claim. The first thing
 * that holds closes it, in the order of egress/README.md "Shaping". Reads only; never throws.
 */
import { MINUTE } from '../../base/clock.ts'
import { SHORT_WAIT, type ClosedGate, type Gate, type Lane, type ShapedPath } from './shaping.ts'
import { isProbing, waitLeft } from './back-off.ts'
import { carefulNames } from './careful-hosts.ts'
import { startConnections, usableConnections } from './concurrency.ts'
import { operatorText, suspensionText, waitText } from './hold-views.ts'
import { isHalfOpen, isSuspended, type Ladder } from './ladder.ts'
import type { MessageRates } from './message-rates.ts'
import { limitsNow } from './path-limits.ts'
import type { PathRecord, ShapedIpRecord, ShapingRecords } from './records.ts'

/** A message that an IP is tried with is answered by then, or never. */
const LONGEST_PROBE = 20 * MINUTE
/** `openConnectionsOf`: of all IPs of the pool, as far as it was told. */
export function createOpenGate(
  time: () => number,
  records: ShapingRecords,
  rates: MessageRates,
  openConnectionsOf: (pool: string) => number,
): (path: ShapedPath, lane: Lane | null) => Gate {
  function closedBySuspension(
    path: ShapedPath,
    record: PathRecord | undefined,
    ip: ShapedIpRecord | undefined,
    now: number,
  ): ClosedGate | undefined {
    const { provider } = path
    const held = provider === null ? undefined : ip?.heldProviders.get(provider)
    if (provider !== null && held !== undefined) {
      return closed(null, 'suspension', operatorText({ ip: path.ip, provider, suspension: held }))
    }
    if (ip !== undefined && isProbedElsewhere(ip, path.route, now)) {
      const until = (ip.probe?.at ?? now) + LONGEST_PROBE
      return closed(until, 'suspension', suspensionText(ip.ladder, `the IP ${path.ip}`, now))
    }
    if (record === undefined) return undefined
    if (isSuspended(record.ladder, now)) {
      return closedUntilEnd(record.ladder, `the path from ${path.ip} to ${path.route}`, now)
    }
    const wait = waitLeft(record.backOff, now)
    return wait > 0 ? closed(now + wait, 'suspension', waitText(record, now)) : undefined
  }

  /** All of the pool's connections are in use, and this path has none of them. */
  function closedByPool(path: ShapedPath, record: PathRecord | undefined): ClosedGate | undefined {
    const limits = records.poolLimitsOf(path.ip)
    if (limits === undefined || limits.connections === null) return undefined
    const { pool, connections: most } = limits
    if (openConnectionsOf(pool) < most) return undefined
    if (record !== undefined && record.concurrency.openedAt.length > 0) return undefined
    return closed(null, 'connections', `the ${most} connections of the pool ${pool} are in use`)
  }

  return (path, lane) => {
    const now = time()
    const record = records.paths.get(path.key)
    // Hardly ever is there one.
    const ip = records.ips.size === 0 ? undefined : records.ips.get(path.ip)
    const bySuspension = closedBySuspension(path, record, ip, now)
    if (bySuspension !== undefined) return bySuspension
    const laneRecord = lane === null ? undefined : records.findLane(path, lane)
    if (laneRecord !== undefined && isSuspended(laneRecord.ladder, now)) {
      return closedUntilEnd(laneRecord.ladder, `mail of ${laneRecord.domain} to ${path.route}`, now)
    }
    const { until: freeAt = 0, reason = '' } = record?.noSocket ?? {}
    if (freeAt > now) return closed(freeAt, 'sockets', `this server has no socket or port free (${reason})`)
    const limits = limitsNow(path, record, now)
    const isProbe = record !== undefined && (isHalfOpen(record.ladder, now) || isProbing(record.backOff, now))
    const mostUnderWay = isProbe || (ip !== undefined && isHalfOpen(ip.ladder, now)) ? 1 : Infinity
    const mostOfLane = laneRecord !== undefined && isHalfOpen(laneRecord.ladder, now) ? 1 : Infinity
    const tokenAt = rates.nextAt(path, record, limits, now)
    const byPool = closedByPool(path, record)
    if (tokenAt > now) {
      const takesRows = tokenAt - now <= SHORT_WAIT && mostUnderWay > 1 && mostOfLane > 1 && byPool === undefined
      return { ...closed(tokenAt, 'rate', RATE_TEXT), takesRows }
    }
    if (byPool !== undefined) return byPool
    const isNewIp = path.newIpLimits !== null
    const learnt = record === undefined ? startConnections(isNewIp) : usableConnections(record.concurrency, now)
    return {
      kind: 'open',
      mostUnderWay,
      mostOfLane,
      connections: mostUnderWay === 1 ? 1 : Math.min(limits.connections, learnt),
      messagesPerConnection: limits.messagesPerConnection,
      carefulHosts: carefulNames(record?.carefulHosts, now),
    }
  }
}

const RATE_TEXT = 'the message rate of the path or of its pool is used up for the moment'

function closedUntilEnd(ladder: Ladder, who: string, now: number): ClosedGate {
  const { until = null, rule = null } = ladder.suspension ?? {}
  return { ...closed(until, 'suspension', suspensionText(ladder, who, now)), rule }
}

function closed(until: number | null, waitingFor: ClosedGate['waitingFor'], text: string): ClosedGate {
  return { kind: 'closed', until, waitingFor, takesRows: false, text, rule: null }
}

/** Another path's message is under way to find out whether the IP is welcome again. */
function isProbedElsewhere({ ladder, probe }: ShapedIpRecord, route: string, now: number): boolean {
  return probe !== null && probe.route !== route && now - probe.at < LONGEST_PROBE && isHalfOpen(ladder, now)
}
