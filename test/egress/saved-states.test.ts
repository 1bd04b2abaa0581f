/** How many rows the store is given at once by shaping. */
import t from 'tap'
import { pathTo, shapingWorld } from './shaping-world.ts'

t.test('small changes are saved in small parts while others wait for the store, at the end all at once', async (t) => {
  const world = await shapingWorld()
  const { shaping, saved } = world
  const learn = (): void => {
    for (let route = 0; route < 250; route++) {
      const path = pathTo(null, { route: `site-${route}` })
      // All connections that it may have were of use: it may have one more.
      shaping.noteConnections(
        path,
        Array.from({ length: 4 }, () => ({ kind: 'opened', inFlight: 1 })),
      )
      shaping.noteConnections(
        path,
        Array.from({ length: 4 }, () => ({ kind: 'ended-well', delivered: 9 })),
      )
    }
  }
  learn()
  await shaping.tick()
  t.same(saved, [100, 100, 50])
  learn()
  await shaping.stop()
  t.same(saved, [100, 100, 50, 250])
  t.equal(world.rows.size, 250)
})
