import { Worker } from 'node:worker_threads'
import t from 'tap'
import { createThreadChannel } from '../../src/base/threads/thread-channel.ts'
import type { LargeBody } from '../../src/http/exchange/read-json.ts'
import { until } from '../support/until.ts'

const ENTRY = new URL('../../src/http/exchange/serve-bodies.ts', import.meta.url)
const MEBIBYTE = 2 ** 20
/** It needs 17; behind an ordinary collection it keeps 22. */
const MOST_MEBIBYTES = 20

t.test('some seconds after a large body the thread keeps only the memory that it needs', async (t) => {
  const worker = new Worker(ENTRY, { execArgv: [] })
  t.teardown(() => worker.terminate())
  const channel = createThreadChannel(worker)
  const heap = async (): Promise<number> => (await worker.getHeapStatistics()).total_heap_size / MEBIBYTE
  const texts = Array<string>(2_000).fill('x'.repeat(10_000))
  const body: LargeBody = { bytes: Buffer.from(JSON.stringify(texts)), needsDigest: false }
  await channel.call('json', body)
  await until('the memory is given back', async () => (await heap()) < MOST_MEBIBYTES)
})
