/**
 * A webhook receiver that shows what it got, under any number of names (sandbox/README.md "Routes under /dev"). Where
 * the secret of a name is known, a delivery without a valid signature is answered with 401, compared in constant time.
 * In memory and bounded: the oldest go first, of the names the one that was used longest ago.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import type { Clock } from '../base/clock.ts'
import { createEntryWatch } from './entry-watch.ts'

/** A status; 200 after 11 s, when the sender has given up; or the connection closed. */
export type HookAnswer = number | 'slow' | 'close'

type WebhookSignature =
  | 'valid'
  | 'invalid' // another secret, or none is known for the name
  | 'missing' // no X-Service-Signature

export interface HookDelivery {
  name: string
  /** Unix milliseconds. */
  receivedAt: number
  headers: IncomingHttpHeaders
  /** Raw, as text. */
  body: string
  /** The parsed body, or null when it is not JSON. */
  event: unknown
  signature: WebhookSignature
  /** X-Service-Attempt, or null. */
  attempt: number | null
  answer: HookAnswer
}

export type WebhookInspector = ReturnType<typeof createWebhookInspector>

interface Hook {
  /** Oldest first, with the bytes of body and headers. */
  kept: { delivery: HookDelivery; bytes: number }[]
  /** What is answered, and how many times more; null: for ever. */
  script: { answer: HookAnswer; times: number | null } | null
}

const MOST_NAMES = 100
const MOST_DELIVERIES = 1_000
const MOST_BYTES = 128 * 1024 * 1024
/** One second more than the sender waits. */
const SLOW_MILLISECONDS = 11_000
const OK = 200
const UNAUTHORIZED = 401

export function createWebhookInspector(options: {
  clock: Clock
  /** Every secret under which this name may be signed. */
  secretsFor: (name: string) => string[]
}) {
  const { clock, secretsFor } = options
  const hooks = new Map<string, Hook>()
  const watch = createEntryWatch()
  let bytesHeld = 0

  const dropOldest = (hook: Hook): void => void (bytesHeld -= hook.kept.shift()?.bytes ?? 0)
  /** The names stand in the order of their last use. */
  const hookFor = (name: string): Hook => {
    const hook = hooks.get(name) ?? { kept: [], script: null }
    hooks.delete(name)
    hooks.set(name, hook)
    const [longestUnused] = hooks
    if (hooks.size > MOST_NAMES && longestUnused !== undefined) {
      while (longestUnused[1].kept.length > 0) dropOldest(longestUnused[1])
      hooks.delete(longestUnused[0])
    }
    return hook
  }

  return {
    /** Keeps the delivery and says how to answer it. */
    receive(name: string, headers: IncomingHttpHeaders, bytes: Buffer): HookDelivery {
      const hook = hookFor(name)
      const secrets = secretsFor(name)
      const signature = verdictOn(headers['x-service-signature'], bytes, secrets)
      const isRefused = secrets.length > 0 && signature !== 'valid'
      const body = bytes.toString('utf8')
      const delivery: HookDelivery = {
        name,
        receivedAt: clock.now(),
        attempt: attemptOf(headers['x-service-attempt']),
        signature,
        answer: nextAnswer(hook) ?? (isRefused ? UNAUTHORIZED : OK),
        event: parsed(body),
        headers,
        body,
      }
      const size = bytes.length + JSON.stringify(headers).length
      hook.kept.push({ delivery, bytes: size })
      bytesHeld += size
      if (hook.kept.length > MOST_DELIVERIES) dropOldest(hook)
      while (bytesHeld > MOST_BYTES) dropOldest(oldestOf(hooks))
      watch.changed()
      return delivery
    },
    /** Newest first; `kind` null: any event. */
    find(name: string, kind: string | null, limit: number, waitMilliseconds: number): Promise<HookDelivery[]> {
      const isMeant = ({ event }: HookDelivery): boolean => kind === null || kindOf(event) === kind
      const look = (): HookDelivery[] =>
        (hooks.get(name)?.kept ?? [])
          .map(({ delivery }) => delivery)
          .filter(isMeant)
          .toReversed()
          .slice(0, limit)
      return watch.wait(look, waitMilliseconds)
    },
    /** The next `times` deliveries get this answer; null: all from now on. */
    answerWith: (name: string, answer: HookAnswer, times: number | null) =>
      void (hookFor(name).script = { answer, times }),
    /** Resolves after 11 s, or when everything ends. */
    dawdle: async () => void (await watch.wait(() => [], SLOW_MILLISECONDS)),
    close: watch.close,
  }
}

/** The scripted answer of this delivery, or null for the ordinary one. */
function nextAnswer(hook: Hook): HookAnswer | null {
  const { script } = hook
  if (script === null) return null
  if (script.times !== null) {
    script.times -= 1
    if (script.times === 0) hook.script = null
  }
  return script.answer
}

/** There is one: it is asked for only while something is held. */
function oldestOf(hooks: ReadonlyMap<string, Hook>): Hook {
  const ages = [...hooks.values()].map((hook) => ({ hook, at: hook.kept[0]?.delivery.receivedAt ?? Infinity }))
  return ages.reduce((oldest, other) => (other.at < oldest.at ? other : oldest)).hook
}

function verdictOn(header: string | string[] | undefined, body: Buffer, secrets: string[]): WebhookSignature {
  if (header === undefined) return 'missing'
  const given = Buffer.from(String(header))
  const isValid = secrets.some((secret) => {
    const expected = Buffer.from(createHmac('sha256', secret).update(body).digest('hex'))
    return given.length === expected.length && timingSafeEqual(given, expected)
  })
  return isValid ? 'valid' : 'invalid'
}

function attemptOf(header: string | string[] | undefined): number | null {
  const attempt = Number(header)
  return Number.isInteger(attempt) ? attempt : null
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    // Whatever was posted is shown as it is.
    return null
  }
}

function kindOf(event: unknown): unknown {
  return typeof event === 'object' && event !== null && 'event' in event ? event.event : undefined
}
