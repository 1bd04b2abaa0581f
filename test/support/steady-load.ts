/**
 * Clients that post batches one after the other, as long as they may, and remember what was answered: ids of all that
 * got a 200, and every refusal. A request without an answer is asked again with other recipients, as nobody knows what
 * became of it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { SENDING_DOMAIN } from './two-ips.ts'

export interface Refusal {
  status: number
  code: string
  retryAfter: string | null
}

export interface SteadyLoad {
  /** Message ids by recipient, of every request that was answered with 200. */
  accepted: ReadonlyMap<string, string>
  refusals: readonly Refusal[]
  stop(): Promise<void>
}

export interface SteadyLoadOptions {
  baseUrl: string
  key: string
  /** Of the recipients, in turns. */
  domains: readonly string[]
  /** Recipients of one request. */
  batch: number
  clients: number
  /** False: wait. */
  mayPost: (accepted: number) => boolean
  /** Of the recipients' local parts; left out: `reader`. */
  prefix?: string
}

const PAUSE = 10
/** A machine that lost its power never answers. */
const ANSWER_MILLISECONDS = 10_000

/** At the end of the test it stops in any case. */
export function startSteadyLoad(t: { teardown(end: () => unknown): void }, options: SteadyLoadOptions): SteadyLoad {
  const { baseUrl, key, domains, batch, clients, mayPost, prefix = 'reader' } = options
  const accepted = new Map<string, string>()
  const refusals: Refusal[] = []
  let requests = 0
  let isStopped = false
  t.teardown(() => (isStopped = true))

  async function post(): Promise<void> {
    const request = requests++
    const recipients = Array.from({ length: batch }, (_, index) => ({
      to: `${prefix}-${request}-${index}@${domains[(request + index) % domains.length]}`,
    }))
    const answer = await fetch(`${baseUrl}/v1/email/batch`, {
      method: 'POST',
      signal: AbortSignal.timeout(ANSWER_MILLISECONDS),
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ from: `shop@${SENDING_DOMAIN}`, subject: 'Order', text: 'On its way', recipients }),
    })
    const body: unknown = await answer.json()
    if (answer.status === 200) {
      for (const { to, message_id: id } of (body as Accepted).results) accepted.set(to, id)
      return
    }
    const { code = '' } = (body as Refused).error ?? {}
    refusals.push({ status: answer.status, code, retryAfter: answer.headers.get('Retry-After') })
    await sleep(PAUSE)
  }

  async function work(): Promise<void> {
    while (!isStopped) {
      if (mayPost(accepted.size)) await post().catch(() => sleep(PAUSE))
      else await sleep(PAUSE)
    }
  }

  const working = Promise.all(Array.from({ length: clients }, work))
  return {
    accepted,
    refusals,
    async stop() {
      isStopped = true
      await working
    },
  }
}

interface Accepted {
  results: { to: string; message_id: string }[]
}

interface Refused {
  error?: { code?: string }
}
