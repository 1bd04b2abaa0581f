/**
 * What keeps a message back, in the words of delivery/README.md "Why a message waits": the operator, the warmup or
 * share of its IPs, a rate, a suspension, connections, or no IP that sends. The caller says a plain retry delay and a
 * start time. Reads, changes nothing, never throws.
 */
import type { IpChoice } from '../../egress/ips/egress-ip.ts'
import type { Shaping } from '../../egress/shaping/shaping.ts'
import type { WaitingFor, WaitReason } from '../../mail/waiting-mail.ts'
import type { MessageView } from '../../store/records/lookup-records.ts'
import type { ChoosePath } from '../place/choose-path.ts'
import { allBusy } from '../place/take-rows.ts'
import type { ClaimParts } from './claim-round.ts'

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
  suspension: 'Its provider takes no mail from the IPs of its pool for now.',
  ip_paused: 'No IP of its pool can send it now.',
  held: 'The operator holds it back.',
}

/** `busy`: only other mail is in its way; null: nothing is. */
type Chosen = { wait: Extract<IpChoice, { kind: 'wait' }> } | { busy: string | null }

export function createWhyWaiting(options: WhyWaitingOptions) {
  const { clock, shaping, routes, capture, choosePath, gateOf, paths, isFull } = options

  function choose(message: MessageView): Chosen | undefined {
    const { isCaptured, recipientDomain } = message
    const route = isCaptured ? capture.routeOf(recipientDomain) : routes.last(recipientDomain)
    if (route === undefined) return undefined
    const attempts = message.attempts.filter(({ result }) => result !== 'path-failed').length
    const asked = { ...message, attempts, route: route.provider.route, keepIpUntil: null, avoidIps: [] }
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
