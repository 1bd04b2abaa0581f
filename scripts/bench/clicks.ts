/**
 * Tracked links under load: requests of `/c/…` from 50 connections, each answered with its redirect.
 */
import { Pool } from 'undici'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { renderKeys } from '../../src/content/message-fields.ts'
import { messageUrls } from '../../src/content/message-fields.ts'
import { apiClient } from '../../test/support/api-client.ts'
import { freePort, MASTER_KEY } from '../../test/support/serve-process.ts'
import { threeDigits } from './figures.ts'
import { FROM, startSternpost, type Sternpost } from './sternpost.ts'
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
const AN_HOUR = 3_600

export async function measureClicks(): Promise<ClickFigures> {
  const sternpost = await startSternpost({ deliveryPort: await freePort() })
  const pool = new Pool(sternpost.server.baseUrl, { connections: CONNECTIONS, pipelining: 1 })
  try {
    const paths = await sendLinks(sternpost)
    let next = 0
    const client = async (): Promise<void> => {
      while (next < CLICKS) {
        const path = paths[next++ % MESSAGES] ?? ''
        const { statusCode, headers, body } = await pool.request({ method: 'GET', path })
        await body.dump()
        if (statusCode !== 302 || headers['location'] !== TARGET) throw new Error(`GET ${path}: ${statusCode}`)
      }
    }
    const { processId } = sternpost.server
    const [startedAt, cpuBefore] = [performance.now(), cpuSeconds(processId)]
    await Promise.all(Array.from({ length: CONNECTIONS }, client))
    const seconds = (performance.now() - startedAt) / 1_000
    const cpuMilliseconds = threeDigits(((cpuSeconds(processId) - cpuBefore) * 1_000) / CLICKS)
    return { clicks: CLICKS, perSecond: threeDigits(CLICKS / seconds), cpuMilliseconds }
  } finally {
    await pool.close()
    await sternpost.stop()
  }
}

/** Messages whose html has TARGET as the only link, due later; the paths of their links. */
async function sendLinks({ server, key }: Sternpost): Promise<string[]> {
  const api = apiClient(server.baseUrl, key)
  const keys = renderKeys(createKeyRing(Buffer.from(MASTER_KEY, 'base64')))
  const html = `<p><a href="${TARGET}">your order</a></p>`
  const sendAt = Math.floor(Date.now() / 1_000) + AN_HOUR
  const paths: string[] = []
  for (let index = 0; index < MESSAGES; index += 1) {
    const message = { to: 'reader@dest.test', from: FROM, subject: 'Order', html, send_at: sendAt }
    paths.push(messageUrls({ messageId: await api.send(message), baseUrl: '', keys }).link(0))
  }
  return paths
}
