/**
 * Tracked links under load: requests of `/c/…` from 50 connections, each answered with its redirect.
 */
import { Pool } from 'undici'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { renderKeys } from '../../src/content/message-fields.ts'
import { messageUrls } from '../../src/content/message-urls.ts'
import { apiClient } from '../../test/support/api-client.ts'
import { MASTER_KEY } from '../../test/support/serve-process.ts'
import type { ServeProcess } from '../../test/support/serve-process.ts'
import { cpuSeconds } from './process-figures.ts'

export interface ClickFigures {
  clicks: number
  perSecond: number
  /** Of the server, for one click. */
  cpuMilliseconds: number
}

const MESSAGES = 100
const CLICKS = 20_000
const CONNECTIONS = 50
const TARGET = 'https://shop.bench.test/orders/1042'

/** `message`: its html has TARGET as the only link. */
export async function measureClicks(
  server: ServeProcess,
  key: string,
  message: Record<string, string>,
): Promise<ClickFigures> {
  const api = apiClient(server.baseUrl, key)
  const keys = renderKeys(createKeyRing(Buffer.from(MASTER_KEY, 'base64')))
  const paths: string[] = []
  for (let index = 0; index < MESSAGES; index += 1) {
    const messageId = await api.send({ ...message, html: `<p><a href="${TARGET}">your order</a></p>` })
    paths.push(messageUrls({ messageId, baseUrl: '', keys }).link(0))
  }
  const pool = new Pool(server.baseUrl, { connections: CONNECTIONS, pipelining: 1 })
  let next = 0
  const client = async (): Promise<void> => {
    while (next < CLICKS) {
      const path = paths[next++ % MESSAGES] ?? ''
      const { statusCode, headers, body } = await pool.request({ method: 'GET', path })
      await body.dump()
      if (statusCode !== 302 || headers['location'] !== TARGET) throw new Error(`GET ${path}: ${statusCode}`)
    }
  }
  const [startedAt, cpuBefore] = [performance.now(), cpuSeconds(server.processId)]
  try {
    await Promise.all(Array.from({ length: CONNECTIONS }, client))
  } finally {
    await pool.close()
  }
  const seconds = (performance.now() - startedAt) / 1_000
  const cpu = ((cpuSeconds(server.processId) - cpuBefore) * 1_000) / CLICKS
  return { clicks: CLICKS, perSecond: Math.round(CLICKS / seconds), cpuMilliseconds: Math.round(cpu * 1_000) / 1_000 }
}
