/**
 * From which IP the next attempt of a message leaves, by what the last one led to (egress/README.md "Keep or rotate").
 *
 * | the last try                       | the next                                                                     |
 * | ---------------------------------- | ---------------------------------------------------------------------------- |
 * | greylisted                         | the same IP, waited for, until 4 h after the first; then free                |
 * | blocked for the IP                 | any other: this one is avoided, the last 8 are; none is once all would be    |
 * | blocked for domain, content, login | the same IP when it can send: another would only be burnt too                |
 * | answer to the dot lost             | the same IP when it can send                                                 |
 * | failed before MAIL                 | the same IP, as long as one is waited for or kept; free after three in a row |
 * | any other refusal                  | the same IP when it can send, for the first two attempts; then free          |
 *
 * Pure. What an IP that cannot send now means for the choice is `egress/ips/choose-ip.ts`.
 */
import { HOUR } from '../../base/clock.ts'
import { BOUNCE_CATEGORIES, type BounceCategory } from '../../mail/reply/bounce-category.ts'
import type { DeliveryOutcome } from '../../mail/reply/delivery-outcome.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'

export interface IpDecisionRequest {
  outcome: DeliveryOutcome['kind']
  category: BounceCategory | null
  /** The IP of this try; null: there was none. */
  ip: string | null
  /** `attempts`, `pathFailures`: before this one. */
  message: Pick<ClaimedMessage, 'attempts' | 'pathFailures' | 'lastIp' | 'keepIpUntil' | 'avoidIps'>
  /** IPs that the message could leave from: asked for where one is to be avoided. */
  poolIps: () => readonly string[]
  now: number
}

const KEEP_GREYLISTED_FOR = 4 * HOUR
const MOST_AVOIDED = 8
const ATTEMPTS_OF_ONE_IP = 2
const PATH_FAILURES_OF_ONE_IP = 3
/** Another IP would only be burnt too. */
const NEVER_ROTATES: readonly BounceCategory[] = ['domain_block', 'spam_content', 'auth_failed']

/**
 * `keepIpUntil` null: free choice; 0: the IP of the last attempt when it can send; a time: it is waited for until then.
 */
type IpDecision = { keepIpUntil: number | null; avoidIps: string[] }

export function decideIp({ outcome, category, ip, message, poolIps, now }: IpDecisionRequest): IpDecision {
  const avoidIps = [...message.avoidIps]
  if (ip === null) return { keepIpUntil: message.keepIpUntil, avoidIps }
  if (outcome === 'path-failed') {
    const isWaitedFor = (message.keepIpUntil ?? 0) > now && ip === message.lastIp
    if (message.pathFailures + 1 >= PATH_FAILURES_OF_ONE_IP) return { keepIpUntil: null, avoidIps }
    return { keepIpUntil: isWaitedFor ? message.keepIpUntil : 0, avoidIps }
  }
  if (outcome === 'ambiguous') return { keepIpUntil: 0, avoidIps }
  if (category === 'greylist') return { keepIpUntil: keepGreylisted(message, ip, now), avoidIps }
  if (category !== null && BOUNCE_CATEGORIES[category].changesIp) {
    return { keepIpUntil: null, avoidIps: avoid(avoidIps, ip, poolIps()) }
  }
  if (category !== null && NEVER_ROTATES.includes(category)) return { keepIpUntil: 0, avoidIps }
  return { keepIpUntil: message.attempts + 1 < ATTEMPTS_OF_ONE_IP ? 0 : null, avoidIps }
}

/** Counted from the first time: a host that greylists for ever does not keep it for ever. */
function keepGreylisted({ keepIpUntil, lastIp }: IpDecisionRequest['message'], ip: string, now: number): number | null {
  const isSameAgain = keepIpUntil !== null && keepIpUntil > 0 && ip === lastIp
  if (!isSameAgain) return now + KEEP_GREYLISTED_FOR
  return keepIpUntil > now ? keepIpUntil : null
}

/** When no IP is left the list has said nothing: then the suspension ladder decides. */
function avoid(avoided: readonly string[], ip: string, poolIps: readonly string[]): string[] {
  const all = [...avoided.filter((other) => other !== ip), ip].slice(-MOST_AVOIDED)
  return poolIps.every((other) => all.includes(other)) ? [] : all
}
