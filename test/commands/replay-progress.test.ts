/**
 * A long `sternpost webhook replay`: it shows how it gets on, and waits for its answer longer than other verbs.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { SECOND } from '../../src/base/clock.ts'
import { callServer } from '../../src/commands/shared/api-client.ts'
import { showReplayProgress } from '../../src/commands/mail/webhook-deliveries.ts'
import { manualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

t.test('every two seconds it shows what waits, until the answer is there', async (t) => {
  const clock = manualClock()
  const ended = new AbortController()
  const shown: string[] = []
  const answers: (number | Error)[] = [500, new Error('busy'), 40_000]
  const showing = showReplayProgress({
    clock,
    signal: ended.signal,
    show: (text) => void shown.push(text),
    async pending() {
      const answer = answers.shift()
      if (typeof answer === 'number') return answer
      throw answer ?? new Error('asked too often')
    },
  })
  await clock.advance(2 * SECOND - 1)
  t.same(shown, [], 'a short one shows nothing')
  for (let count = 1; count <= 3; count++) {
    await clock.advance(count === 1 ? 1 : 2 * SECOND)
    await until(`line ${count}`, () => shown.length === count)
  }
  ended.abort()
  await showing
  await clock.advance(10 * SECOND)
  t.same(shown, [
    'replaying for 2 s, 500 deliveries wait for the endpoint',
    'replaying for 4 s',
    'replaying for 6 s, 40000 deliveries wait for the endpoint',
  ])
})

t.test('a server that does not answer is given up after the time that the verb has', async (t) => {
  const server = createServer((request) => void request.resume())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const address = { kind: 'remote' as const, url: new URL(`http://127.0.0.1:${port}/`), apiKey: 'x' }
  await t.rejects(callServer(address, 'POST /v1/webhooks', { patience: 60 }), {
    exitCode: 69,
    message: /no answer within 0\.06 s/,
  })
})
