/**
 * What a look-up costs beside so many stored messages: by id, and by the recipient's address.
 */
import { Pool } from 'undici'
import { freePort } from '../../test/support/serve-process.ts'
import { percentile, threeDigits } from './figures.ts'
import { runLoad } from './load.ts'
import { batchBody } from './message.ts'
import { BATCH_RECIPIENTS, bytesOf } from './sternpost-system.ts'
import { FROM, startSternpost, type Sternpost } from './sternpost.ts'
import { cpuSeconds } from './process-figures.ts'

export interface LookupRow {
  what: string
  stored: number
  /** Of the server, for one look-up. */
  cpuMilliseconds: number
  p50Milliseconds: number
}

const LOOKUPS = 2_000
const A_DAY = 86_400

export async function measureLookups(most: number): Promise<LookupRow[]> {
  const sternpost = await startSternpost({ deliveryPort: await freePort() })
  const body = batchBody({ from: FROM, recipientDomain: 'dest.test', htmlBytes: bytesOf(10) }, BATCH_RECIPIENTS, {
    send_at: Math.floor(Date.now() / 1_000) + A_DAY,
  })
  const rows: LookupRow[] = []
  try {
    let batches = 0
    for (const messages of [BATCH_RECIPIENTS, most]) {
      const wanted = Math.ceil(messages / BATCH_RECIPIENTS) - batches
      const first = batches
      await runLoad({
        baseUrl: sternpost.server.baseUrl,
        apiKey: sternpost.key,
        path: '/v1/email/batch',
        clients: 1,
        messages: Math.max(0, wanted),
        body: (index) => body(first + index),
      })
      batches += Math.max(0, wanted)
      rows.push(...(await timeLookups(sternpost, batches * BATCH_RECIPIENTS)))
    }
  } finally {
    await sternpost.stop()
  }
  return rows
}

async function timeLookups({ server, key }: Sternpost, stored: number): Promise<LookupRow[]> {
  const pool = new Pool(server.baseUrl, { connections: 1, pipelining: 1 })
  const get = async (path: string): Promise<unknown> => {
    const { statusCode, body } = await pool.request({
      method: 'GET',
      path: `/v1${path}`,
      headers: { authorization: `Bearer ${key}` },
    })
    if (statusCode !== 200) throw new Error(`GET ${path}: ${statusCode} ${await body.text()}`)
    return body.json()
  }
  const spread = (index: number): number => Math.floor((index * stored) / LOOKUPS)
  const search = (index: number): string => `/email?recipient=reader-${spread(index)}@dest.test`
  const ids: string[] = []
  try {
    const byRecipient = await time(server.processId, async (index) => {
      const { data } = (await get(search(index))) as { data: { message_id: string }[] }
      if (data[0] === undefined) throw new Error(`nothing found: ${search(index)}`)
      ids.push(data[0].message_id)
    })
    const byId = await time(server.processId, (index) => get(`/email/${ids[index] ?? ''}`))
    return [
      { what: 'look-up by id', stored, ...byId },
      { what: 'search by recipient', stored, ...byRecipient },
    ]
  } finally {
    await pool.close()
  }
}

async function time(
  processId: number,
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
  const p50 = percentile(
    latencies.toSorted((left, right) => left - right),
    0.5,
  )
  return { cpuMilliseconds: threeDigits(cpu), p50Milliseconds: threeDigits(p50) }
}
