import t from 'tap'
import { createReadyWindow } from '../../src/delivery/place/ready-window.ts'
import type { ClaimedMessage } from '../../src/store/records/claim-records.ts'
import { claimedRow } from '../store/store-samples.ts'

const message = (claim: number, change: Partial<ClaimedMessage> = {}): ClaimedMessage =>
  claimedRow(claim, { key: 1, ...change })

t.test('a row that is claimed again before the end of its older claim is heard is held by both', (t) => {
  const window = createReadyWindow(() => 8)
  const [older, newer] = [message(1), message(2)]
  window.hold([older])
  window.hold([newer])
  t.same([window.size(), window.room(), window.ofLane('acme.test', 'bulk')], [2, 6, 2])
  window.release([older.claim])
  t.same([window.size(), window.room(), window.ofDomain('default', 'dest.test', 'acme.test')], [1, 7, 1])
  window.release([older.claim])
  t.equal(window.size(), 1, 'it is released once')
  window.release([newer.claim])
  t.same([window.size(), window.room(), window.roomForBulk()], [0, 8, 6])
  t.end()
})

t.test('rows in threads leave room for others, up to twice the window', (t) => {
  const window = createReadyWindow(() => 2)
  const rows = [1, 2, 3, 4].map((claim) => message(claim, { key: claim, stream: 'transactional' }))
  window.hold(rows.slice(0, 2))
  t.equal(window.room(), 0)
  for (const row of rows.slice(0, 2)) window.handOver(row)
  t.equal(window.room(), 2)
  window.hold(rows.slice(2))
  for (const row of rows.slice(2)) window.handOver(row)
  t.equal(window.room(), 0, 'twice as many are held')
  for (const row of rows.slice(0, 1)) window.takeBack(row)
  window.release([1])
  t.equal(window.room(), 1)
  t.end()
})
