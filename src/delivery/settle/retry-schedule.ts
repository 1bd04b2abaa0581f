/**
 * When a message is tried again: pure, from the attempt number and the message id alone. The jitter is a hash, not
 * chance, so a test can predict it and a restart does not change it. A wait that does not fit into the lifetime is
 * pulled forward once to the last minute of it, else the message has expired. A greylisted message waits for
 * `greylist_retry` instead (`judge-reply.ts`) and keeps its IP (`ip-decision.ts`). delivery/README.md "Retries" and
 * "Greylisting".
 */
import { HOUR, MINUTE, SECOND } from '../../base/clock.ts'

/** A message waits as its path does (delivery/README.md "Path errors"). */
export { PATH_WAITS } from '../../egress/shaping/back-off.ts'

/**
 * Simulated recipients are answered within seconds, whatever they stand for (http/README.md "Simulated recipients").
 */
const SHORTEST_SIMULATED_WAIT = SECOND
const LONGEST_SIMULATED_WAIT = 5 * SECOND
/** A host's own wish ("try again in N seconds") is honoured between these (delivery/README.md "Retries"). */
const SHORTEST_WISH = MINUTE
const LONGEST_WISH = 4 * HOUR
/** The last try is this long before the end, when that is far enough away (delivery/README.md "Retries"). */
const LAST_TRY_BEFORE_END = MINUTE
const LAST_TRY_AT_LEAST_AWAY = 15 * MINUTE

/** It was claimed within its lifetime, and no try takes as long: the clock was set. */
const BEYOND_EVERY_TRY = HOUR

/** The wait after failure number `failure` (from 1) of `waits`, moved by at most the share `jitter` to both sides. */
export function scheduledWait(waits: readonly number[], failure: number, messageId: string, jitter: number): number {
  const wait = waits[Math.min(failure, waits.length) - 1] ?? MINUTE
  return Math.round(wait * (1 + jitter * (2 * hashShare(`${messageId} ${failure}`) - 1)))
}

/** The wait of a message to a simulated recipient after failure number `failure`. */
export function simulatedWait(failure: number, messageId: string): number {
  const room = LONGEST_SIMULATED_WAIT - SHORTEST_SIMULATED_WAIT
  return Math.round(SHORTEST_SIMULATED_WAIT + room * hashShare(`${messageId} ${failure}`))
}

/** When the next try is, or null when none fits into the lifetime any more. */
export function nextTryAt(now: number, wait: number, expiresAt: number): number | null {
  if (now + wait < expiresAt || now > expiresAt + BEYOND_EVERY_TRY) return now + wait
  const lastTry = expiresAt - LAST_TRY_BEFORE_END
  return lastTry - now >= LAST_TRY_AT_LEAST_AWAY ? lastTry : null
}

/** Milliseconds a reply asks us to wait, clamped, or null when it names no time. */
export function wishedWait(replyText: string): number | null {
  // "try again in 5 minutes", "retry after 300 seconds", "please try later in 1 hour": a number and its unit.
  const found = /\b(?:try|retry)\b[^.;]{0,40}?\b(?:in|after)\s+(\d{1,6})\s*(s|m|h)[a-z]*\b/i.exec(replyText)
  if (found === null) return null
  const unit = { s: SECOND, m: MINUTE, h: HOUR }[found[2]?.toLowerCase() ?? ''] ?? SECOND
  return Math.min(Math.max(Number(found[1]) * unit, SHORTEST_WISH), LONGEST_WISH)
}

/** FNV-1a, 32 bits, as a share of 1: spreads well enough and costs nothing. */
function hashShare(text: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  return (hash >>> 0) / 2 ** 32
}
