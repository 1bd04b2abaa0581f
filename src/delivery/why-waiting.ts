/**
 * What keeps a message back that would be sent now, in the words of contract.md 6.3: no IP that sends, a path that is
 * left alone, or no connection free. Times that a retry or a customer set are not looked at. Reads, changes nothing.
 */
import type { Egress } from '../egress/pool.ts'
import type { MessageView } from '../store/lookup-records.ts'
import type { MessagePlacer } from './place-messages.ts'
import type { Paths } from './paths.ts'
import type { PlacedRow } from './placed-row.ts'

export type WaitingMessage = Pick<MessageView, 'id' | 'state' | 'pool' | 'recipientDomain' | 'ip' | 'isCaptured'>

export interface WaitReason {
  waitingFor: 'ip_paused' | 'suspension' | 'connections'
  /** Null: nobody knows. */
  untilMilliseconds: number | null
  /** A sentence. */
  text: string
}

export interface WhyWaitingOptions {
  egress: Pick<Egress, 'refusal'>
  paths: Pick<Paths<PlacedRow>, 'whyLeftAlone' | 'isBusy'>
  placer: Pick<MessagePlacer, 'locate'>
  /** The ready window is full. */
  isFull: () => boolean
}

export type WhyWaiting = (message: WaitingMessage) => WaitReason | undefined

export function createWhyWaiting({ egress, paths, placer, isFull }: WhyWaitingOptions): WhyWaiting {
  return (message) => {
    const { state, pool, recipientDomain, isCaptured } = message
    if (!['queued', 'deferred', 'sending'].includes(state)) return undefined
    const refusal = isCaptured ? undefined : egress.refusal(pool)
    if (refusal !== undefined) return forIp(`No IP can send it now: ${refusal.details}.`)
    const located = placer.locate({ ...message, stickyIp: message.ip, pathFailures: 0 })
    if (located === undefined) return undefined
    if (located.kind === 'no-ip') return forIp(`No IP of pool ${pool} reaches the hosts of ${recipientDomain}.`)
    const { plan, route: { provider: { isp } } } = located
    const leftAlone = paths.whyLeftAlone(plan.key)
    if (leftAlone !== undefined) {
      const { until: untilMilliseconds, reason } = leftAlone
      const text = `The hosts of ${isp} take no mail from ${plan.source} now: ${reason}.`
      return { waitingFor: 'suspension', untilMilliseconds, text }
    }
    const isHeldBack = state !== 'deferred' && (paths.isBusy(plan.key) || isFull())
    if (!isHeldBack) return undefined
    const text = `All connections to ${isp} are in use.`
    return { waitingFor: 'connections', untilMilliseconds: null, text }
  }
}

function forIp(text: string): WaitReason {
  return { waitingFor: 'ip_paused', untilMilliseconds: null, text }
}
