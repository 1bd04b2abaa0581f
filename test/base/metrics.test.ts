/**
 * What is only known by asking: a part that fails, or does not answer, takes nobody else along.
 */
import t from 'tap'
import { createMetrics } from '../../src/base/metrics.ts'

t.test('a part that fails or hangs leaves the others readable', async (t) => {
  const metrics = createMetrics()
  metrics.beforeReading(() => Promise.reject(new Error('no')))
  metrics.beforeReading(() => {
    throw new Error('at once')
  })
  metrics.beforeReading(() => metrics.databaseBytes.set(7))
  t.match(await metrics.text(), /^sternpost_database_bytes 7$/m)
  metrics.beforeReading(() => new Promise(() => {}))
  metrics.beforeReading(() => metrics.databaseBytes.set(8))
  t.match(await metrics.text(), /^sternpost_database_bytes 8$/m, 'and the reader is not kept waiting for ever')
})
