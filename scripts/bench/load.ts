/**
 * The load: a number of clients that each post the next message as soon as the last one was answered.
 */
import { Pool } from 'undici'

export interface LoadOptions {
  baseUrl: string
  apiKey: string
  clients: number
  /** Requests in all. */
  messages: number
  body: (index: number) => string
  /** Left out: one message a request. */
  path?: string
}

export interface LoadResult {
  seconds: number
  /** Milliseconds from request to answer, ascending. */
  latencies: number[]
}

/** Throws when any request is not accepted. */
export async function runLoad(options: LoadOptions): Promise<LoadResult> {
  const pool = new Pool(options.baseUrl, { connections: options.clients, pipelining: 1 })
  const latencies: number[] = []
  let next = 0
  const client = async (): Promise<void> => {
    while (next < options.messages) {
      const index = next++
      const startedAt = performance.now()
      const { statusCode, body } = await pool.request({
        method: 'POST',
        path: options.path ?? '/v1/email/send',
        headers: { authorization: `Bearer ${options.apiKey}`, 'content-type': 'application/json' },
        body: options.body(index),
      })
      const answer = await body.text()
      if (statusCode !== 200) throw new Error(`request ${index} was not accepted: ${statusCode} ${answer}`)
      latencies.push(performance.now() - startedAt)
    }
  }
  const startedAt = performance.now()
  try {
    await Promise.all(Array.from({ length: options.clients }, client))
  } finally {
    await pool.close()
  }
  return { seconds: (performance.now() - startedAt) / 1_000, latencies: latencies.sort((left, right) => left - right) }
}

/** The value below which `share` of the ascending values lie. */
export function percentile(ascending: readonly number[], share: number): number {
  return ascending[Math.min(ascending.length - 1, Math.floor(ascending.length * share))] ?? Number.NaN
}
