/**
 * What a look-up costs beside so many stored messages: by id, and by the recipient's address.
 */
import { Pool } from 'undici'
import type { ServeProcess } from '../../test/support/serve-process.ts'
import { percentile } from './load.ts'
import { cpuSeconds } from './process-figures.ts'

export interface LookupRow {
  what: string
  stored: number
  /** Of the server, for one look-up. */
  cpuMilliseconds: number
  p50Milliseconds: number
}

export interface LookupsOptions {
  server: ServeProcess
  key: string
  /** Messages to `reader-<n>@<recipientDomain>`, n from 0. */
  stored: number
  recipientDomain: string
}

const LOOKUPS = 2_000

export async function timeLookups(options: LookupsOptions): Promise<LookupRow[]> {
  const { server, key, stored, recipientDomain } = options
  const pool = new Pool(server.baseUrl, { connections: 1, pipelining: 1 })
  const get = async (path: string): Promise<unknown> => {
    const { statusCode, body } = await pool.request({
      method: 'GET', path: `/v1${path}`, headers: { authorization: `Bearer ${key}` },
    })
    if (statusCode !== 200) throw new Error(`GET ${path}: ${statusCode} ${await body.text()}`)
    return body.json()
  }
  const spread = (index: number): number => Math.floor((index * stored) / LOOKUPS)
  const search = (index: number): string => `/email?recipient=reader-${spread(index)}@${recipientDomain}`
  const ids: string[] = []
  try {
    const byRecipient = await time(server, async (index) => {
      const { data } = (await get(search(index))) as { data: { message_id: string }[] }
      if (data[0] === undefined) throw new Error(`nothing found: ${search(index)}`)
      ids.push(data[0].message_id)
    })
    const byId = await time(server, (index) => get(`/email/${ids[index] ?? ''}`))
    return [{ what: 'look-up by id', stored, ...byId }, { what: 'search by recipient', stored, ...byRecipient }]
  } finally {
    await pool.close()
  }
}

async function time(
  { processId }: ServeProcess,
  look: (index: number) => Promise<unknown>,
): Promise<Pick<LookupRow, 'cpuMilliseconds' | 'p50Milliseconds'>> {
  const latencies: number[] = []
  const cpuBefore = cpuSeconds(processId)
  for (let index = 0; index < LOOKUPS; index += 1) {
    const startedAt = performance.now()
    await look(index)
    latencies.push(performance.now() - startedAt)
  }
  const cpu = ((cpuSeconds(processId) - cpuBefore) * 1_000) / LOOKUPS
  const p50 = percentile(latencies.toSorted((left, right) => left - right), 0.5)
  return { cpuMilliseconds: Math.round(cpu * 1_000) / 1_000, p50Milliseconds: Math.round(p50 * 1_000) / 1_000 }
}
