/**
 * The `/dev` paths are the sandbox's alone: `sternpost serve` knows none of them, with a key or without.
 */
import t from 'tap'
import { startServe } from '../support/serve-process.ts'
import { TWO_IPS } from '../support/two-ips.ts'

const PATHS = [
  ['GET', '/dev'],
  ['GET', '/dev/'],
  ['GET', '/dev/inbox'],
  ['DELETE', '/dev/inbox'],
  ['GET', '/dev/inbox/1/raw'],
  ['GET', '/dev/clock'],
  ['POST', '/dev/clock'],
  ['GET', '/dev/replies'],
  ['PUT', '/dev/replies'],
  ['DELETE', '/dev/replies'],
  ['GET', '/dev/hooks/inspector'],
  ['POST', '/dev/hooks/inspector'],
  ['PUT', '/dev/hooks/inspector'],
] as const

t.test('serve answers 404 on every /dev path', async (t) => {
  const server = await startServe({ dnsServer: '127.0.0.1:9', deliveryPort: 9, pools: TWO_IPS })
  t.teardown(() => server.remove())
  const key = await server.createKey('admin')
  for (const [method, path] of PATHS) {
    for (const headers of [{}, { Authorization: `Bearer ${key}` }]) {
      const body = method === 'GET' ? {} : { body: '{"speed":60}' }
      const answer = await fetch(`${server.baseUrl}${path}`, { method, headers, ...body })
      t.equal(answer.status, 404, `${method} ${path}`)
      t.match(await answer.json(), { success: false, error: { code: 'not_found' } })
    }
  }
})
