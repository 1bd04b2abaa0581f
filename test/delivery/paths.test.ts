import t from 'tap'
import { MINUTE } from '../../src/base/clock.ts'
import { createPaths } from '../../src/delivery/paths.ts'
import type { PathRow } from '../../src/delivery/paths.ts'
import { manualClock } from '../support/manual-clock.ts'

const row = (key: number, path = 'a', limits: { connections?: number; failures?: number } = {}): PathRow => ({
  key, failuresAllowed: limits.failures ?? 10,
  plan: {
    key: path, source: '127.0.0.1', hostname: 'mail.test', connections: limits.connections ?? 10,
    messagesPerConnection: 100,
    idleMilliseconds: 1, requiresTls: false,
  },
})

t.test('a path gets as many rows as keep its sessions busy, and more when they come back', async (t) => {
  const paths = createPaths({ clock: manualClock(), threads: 1 })
  for (let key = 0; key < 500; key++) paths.add(row(key))
  t.equal(paths.takeReady().ready[0]?.rows.length, 200)
  t.strictSame(paths.takeReady(), { ready: [], held: [] })
  paths.settle('a', 'worked')
  t.equal(paths.takeReady().ready[0]?.rows.length, 1)
  t.equal(paths.takeWaiting().length, 299)
})

t.test('a path stays with its thread, new ones take turns', async (t) => {
  const paths = createPaths({ clock: manualClock(), threads: 2 })
  for (const [key, path] of ['a', 'b', 'c'].entries()) paths.add(row(key, path))
  t.strictSame(paths.takeReady().ready.map(({ thread }) => thread), [0, 1, 0])
  for (const path of ['a', 'b', 'c']) paths.settle(path, 'worked')
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
    paths.settle('a', 'failed')
  }
  fail()
  fail()
  t.equal(paths.waitOf('a'), 0)
  for (const minutes of [1, 2, 5, 10, 15, 30, 60, 60]) {
    fail()
    t.equal(paths.waitOf('a'), minutes * MINUTE)
    paths.add(row(key++))
    t.match(paths.takeReady(), { ready: { length: 0 }, held: { length: 1 } })
    await clock.advance(minutes * MINUTE)
  }
  for (let count = 0; count < 5; count++) paths.add(row(key++))
  t.equal(paths.takeReady().ready[0]?.rows.length, 1, 'one probe')
  paths.settle('a', 'worked')
  t.equal(paths.takeReady().ready[0]?.rows.length, 4, 'open again')
})

t.test('a path that has worked may fail as often as its provider allows', async (t) => {
  const paths = createPaths({ clock: manualClock(), threads: 1 })
  for (let key = 0; key < 20; key++) paths.add(row(key, 'a', { failures: 5 }))
  paths.takeReady()
  paths.settle('a', 'worked')
  for (let failures = 1; failures < 5; failures++) paths.settle('a', 'failed')
  paths.settle('a', 'neither')
  t.equal(paths.waitOf('a'), 0)
  paths.settle('a', 'failed')
  t.equal(paths.waitOf('a'), MINUTE)
  paths.settle('a', 'failed')
  t.equal(paths.waitOf('a'), MINUTE, 'what was under way brings no news')
})
