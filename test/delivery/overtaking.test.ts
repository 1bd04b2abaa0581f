/**
 * Answers of the store that overtake each other: what is heard late is of an older claim, and loses no row.
 */
import t from 'tap'
import type { Store } from '../../src/store/store.ts'
import { scriptedMx } from '../support/scripted-mx.ts'
import { startEngine } from './start-engine.ts'

const ANNA = 'anna@dest.test'

/**
 * A store that answers the first return only when a later claim, which took the freed row again, has been heard. Until
 * then nothing is marked: no row leaves its path.
 */
function createOvertaking(): { watchStore: (store: Store) => Store; isReturned: () => boolean; isOver: () => boolean } {
  const overtaken = Promise.withResolvers<void>()
  let freed: number[] = []
  let isOver = false
  return {
    isReturned: () => freed.length > 0,
    isOver: () => isOver,
    watchStore: (store) => ({
      ...store,
      async unclaim(request) {
        await store.unclaim(request)
        if (isOver) return
        freed = request.rows.map(({ key }) => key)
        await overtaken.promise
      },
      async claimDue(request) {
        // From the first row on, as where the directory has forgotten some: the freed one is due before the later one.
        const claimed = await store.claimDue({ ...request, asks: request.asks.map((ask) => ({ ...ask, from: 0 })) })
        if (isOver || !claimed.messages.some(({ key }) => freed.includes(key))) return claimed
        isOver = true
        // When all that follows from the claim has been done.
        setImmediate(overtaken.resolve)
        return claimed
      },
      async markDotSent(epoch, rows) {
        await overtaken.promise
        return store.markDotSent(epoch, rows)
      },
    }),
  }
}

t.test('a row that is claimed again before its return is heard is sent all the same', async (t) => {
  const server = await scriptedMx({ address: '127.0.0.2' })
  t.teardown(() => server.close())
  const { watchStore, isReturned, isOver } = createOvertaking()
  const engine = await startEngine(t, { port: server.port, watchStore, providers: { default: { connections: 1 } } })
  // Three rows go to the thread, one waits for room.
  const ids = await engine.accept(ANNA, { count: 4 })
  await engine.until('the rows are in their path', () => (server.connections[0]?.commands.length ?? 0) >= 4)
  // What waits is placed anew.
  await engine.live.replace({ ...engine.live.current() })
  await engine.until('the row that waited was given back', isReturned)
  // It brings a claim of its queue key, in which the freed row stands first.
  const [later] = await engine.accept(ANNA)
  await engine.until('the freed row is claimed again', isOver)
  for (const id of [...ids, later]) await engine.untilState(id, 'delivered')
  t.equal(server.messages.length, 5, 'each was sent once')
})
