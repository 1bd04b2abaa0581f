import t from 'tap'
import { HOUR, MINUTE } from '../../src/base/clock.ts'
import { createPaths } from '../../src/delivery/paths.ts'
import type { PathResult, PathRow } from '../../src/delivery/paths.ts'
import { createPathSender } from '../../src/delivery/path-sender.ts'
import { NO_CONNECTION } from '../../src/delivery/try-result.ts'
import type { TryResult } from '../../src/delivery/try-result.ts'
import { manualClock } from '../support/manual-clock.ts'

const row = (key: number, path = 'a', limits: { connections?: number; failures?: number } = {}): PathRow => ({
  key, failuresAllowed: limits.failures ?? 10,
  plan: {
    key: path, port: 25, source: '127.0.0.1', hostname: 'mail.test', connections: limits.connections ?? 10,
    messagesPerConnection: 100,
    idleMilliseconds: 1, requiresTls: false,
  },
})

const FAILED: PathResult = { kind: 'failed', reason: 'connection refused' }

t.test('a path gets as many rows as keep its sessions busy, and more when they come back', async (t) => {
  const paths = createPaths({ clock: manualClock(), threads: 1 })
  for (let key = 0; key < 500; key++) paths.add(row(key))
  t.equal(paths.takeReady().ready[0]?.rows.length, 200)
  t.strictSame(paths.takeReady(), { ready: [], held: [] })
  paths.settle('a', { kind: 'worked' })
  t.equal(paths.takeReady().ready[0]?.rows.length, 1)
  t.equal(paths.takeWaiting().length, 299)
})

t.test('a path stays with its thread, new ones take turns', async (t) => {
  const paths = createPaths({ clock: manualClock(), threads: 2 })
  for (const [key, path] of ['a', 'b', 'c'].entries()) paths.add(row(key, path))
  t.strictSame(paths.takeReady().ready.map(({ thread }) => thread), [0, 1, 0])
  for (const path of ['a', 'b', 'c']) paths.settle(path, { kind: 'worked' })
  for (const [key, path] of ['c', 'b', 'a'].entries()) paths.add(row(key, path))
  t.strictSame(paths.takeReady().ready.map(({ thread }) => thread), [0, 1, 0])
})

t.test('after enough failures the path waits longer and longer, with one probe after each wait', async (t) => {
  const clock = manualClock()
  const paths = createPaths({ clock, threads: 1 })
  let key = 0
  const fail = (): void => {
    paths.add(row(key++))
    t.equal(paths.takeReady().ready.length, 1)
    paths.settle('a', FAILED)
  }
  fail()
  fail()
  t.equal(paths.waitOf('a'), 0)
  for (const minutes of [1, 2, 5, 10, 15, 30, 60, 60]) {
    fail()
    t.equal(paths.waitOf('a'), minutes * MINUTE)
    t.strictSame(paths.whyLeftAlone('a'), { until: clock.now() + minutes * MINUTE, reason: 'connection refused' })
    paths.add(row(key++))
    t.match(paths.takeReady(), { ready: { length: 0 }, held: { length: 1 } })
    await clock.advance(minutes * MINUTE)
  }
  for (let count = 0; count < 5; count++) paths.add(row(key++))
  t.equal(paths.takeReady().ready[0]?.rows.length, 1, 'one probe')
  paths.settle('a', { kind: 'worked' })
  t.equal(paths.whyLeftAlone('a'), undefined)
  t.equal(paths.isBusy('a'), true, 'more rows than one probe')
  t.equal(paths.takeReady().ready[0]?.rows.length, 4, 'open again')
  t.equal(paths.isBusy('a'), false)
})

t.test('a path that has worked may fail as often as its provider allows', async (t) => {
  const paths = createPaths({ clock: manualClock(), threads: 1 })
  for (let key = 0; key < 20; key++) paths.add(row(key, 'a', { failures: 5 }))
  paths.takeReady()
  paths.settle('a', { kind: 'worked' })
  for (let failures = 1; failures < 5; failures++) paths.settle('a', FAILED)
  paths.settle('a', { kind: 'neither' })
  t.equal(paths.waitOf('a'), 0)
  paths.settle('a', FAILED)
  t.equal(paths.waitOf('a'), MINUTE)
  paths.settle('a', FAILED)
  t.equal(paths.waitOf('a'), MINUTE, 'what was under way brings no news')
})

t.test('how long a try took is real time, however far the clock jumps meanwhile', async (t) => {
  const begin = Date.UTC(2026, 10, 21)
  let now = begin
  const { plan } = row(1)
  const failure = { stage: 'connect' as const, code: '4.4.1', reason: 'nobody listens' }
  const tried = new Promise<TryResult>((resolve) => {
    const sender = createPathSender(plan, {
      report: resolve, takeConnection: () => true, releaseConnection: () => {}, onIdle: () => {},
      tools: {
        now: () => now,
        transcript: () => null,
        render: () => new Promise(() => {}),
        open: async () => {
          now += HOUR
          return { kind: 'failed', failure, facts: NO_CONNECTION }
        },
      },
    })
    const site = { key: 'mx', hosts: [{ name: 'mx.test', addresses: ['127.0.0.2'] }] }
    const dispatched = {
      key: 1, messageId: 'msg_1', contentId: 1, domain: 'acme.test', returnPath: 'bounces.acme.test',
      expiresAt: Infinity, isCaptured: false,
    }
    sender.add({ path: plan, site, rows: [dispatched] })
  })
  const { startedAt, durationMilliseconds, end } = await tried
  t.equal(end.kind, 'path-failed')
  t.equal(startedAt, begin)
  t.ok(durationMilliseconds < HOUR)
})
