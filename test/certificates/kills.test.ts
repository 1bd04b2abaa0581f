/**
 * kill -9 in every step of an order, before the authority hears of it and before its answer arrives: each order is gone
 * on with, none is lost, and none is placed twice. Counted at the authority.
 */
import t from 'tap'
import { apiClient } from '../support/api-client.ts'
import { skipWithoutPebble } from '../support/pebble.ts'
import type { ServeProcess } from '../support/serve-process.ts'
import { until } from '../support/until.ts'
import { HOST, isGood, LINKS, rows, startWorld } from './certificate-world.ts'

const isFull = process.env['TEST_SCALE'] === 'full'
const KILLS = isFull ? 50 : 6

t.setTimeout(1_800_000)

const STEPS: readonly [string, RegExp][] = [
  ['account', /^\/sign-me-up$/],
  ['order', /^\/order-plz$/],
  ['state of the order', /^\/my-order\//],
  ['authorization', /^\/authZ\//],
  ['challenge', /^\/chalZ\//],
  ['finalize', /^\/finalize-order\//],
  ['certificate', /^\/certZ\//],
]
const MOMENTS = ['before', 'after'] as const
/** Of the small size: where something would be lost. */
const CHOSEN = ['after account', 'after order', 'before challenge', 'after finalize', 'before certificate']

t.test('no order is lost, and none is placed twice', { skip: skipWithoutPebble }, async (t) => {
  let server: ServeProcess | undefined
  let up = Promise.withResolvers<void>()
  const done: string[] = []
  let left = new Set<string>()
  const world = await startWorld(t, {
    async rule({ path }, pass) {
      await up.promise
      const step = STEPS.find(([, fits]) => fits.test(path))?.[0]
      const moment = MOMENTS.find((each) => left.delete(`${each} ${step}`))
      if (moment === undefined || done.length >= KILLS) return pass()
      // Whatever comes now waits for the next start.
      up = Promise.withResolvers()
      if (moment === 'after') await pass()
      await server?.kill()
      done.push(`${moment} ${step}`)
      return null
    },
  })
  const kills = (): string[] =>
    isFull ? MOMENTS.flatMap((moment) => STEPS.map(([step]) => `${moment} ${step}`)) : CHOSEN
  left = new Set(kills())
  server = await world.start()
  const api = apiClient(server.baseUrl, await server.createKey('admin'))
  up.resolve()

  /** Starts the server anew after each kill, until a client sees another certificate. */
  async function getThrough(name: string, before: string | null): Promise<string> {
    for (let seen = done.length; ;) {
      const look = async (): Promise<string | null> => {
        if (done.length > seen) return 'killed'
        const now = await isGood(world, name)
        return now === before ? null : now
      }
      // A renewal begins within 30 s.
      const serial = await until('another certificate, or a kill', look, 300_000)
      if (serial !== 'killed') return serial
      seen = done.length
      await server?.start()
      up.resolve()
    }
  }

  let serial = await getThrough(HOST, null)
  await getThrough(LINKS, null)
  let orders = 2
  while (done.length < KILLS) {
    left = new Set(isFull ? kills() : ['before order'])
    t.equal((await api.post(`/admin/certificates/${HOST}/renew`, {})).status, 202)
    serial = await getThrough(HOST, serial)
    orders += 1
  }
  t.equal(done.length, KILLS, done.join(', '))
  // Who is killed while the authority looks at the door gets that order closed: no client can go on with it.
  const closed = server.log().filter(({ msg }) => msg === 'no certificate')
  for (const { problem } of closed)
    t.match(String(problem), /the authority closed the order|must lead to this server, and its port 80/)
  t.ok(closed.length <= done.filter((kill) => kill === 'after challenge').length, `${closed.length} closed`)
  t.equal(world.pebble.orders(), orders + closed.length, 'orders that the authority has seen')
  t.same(rows(server, 'select name from certificates where order_sealed_key is not null'), [], 'none is left open')
  t.equal(rows(server, 'select directory from acme_accounts').length, 1, 'one account')
  t.equal(await isGood(world, HOST), serial)
})
