/** What a reload does last: mail of a pool that is gone moves only when every part has taken the new files over. */
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { createLiveConfiguration } from '../../src/config/live-configuration.ts'
import { loadConfiguration } from '../../src/config/load-configuration.ts'
import { createAdministration } from '../../src/operations/operator-actions.ts'
import { createReload } from '../../src/operations/reload.ts'
import { poolOf, warmed, withPools } from '../egress/egress-parts.ts'

const POOLS =
  'version: 1\ndefault_pool: mine\npools: { mine: { ips: [{ address: 203.0.113.9, hostname: a.example.net }] } }\n'

t.test('mail stays in its pool while any part refuses the change, whenever that part began to listen', async (t) => {
  const kept = poolOf([warmed('127.0.0.11')])
  const live = createLiveConfiguration(withPools({ default: kept, legacy: poolOf([warmed('127.0.0.12')]) }))
  const calls: string[][] = []
  const { reload } = createReload({
    live,
    load: () => withPools({ default: kept }),
    store: { moveOrphans: async (known) => (calls.push(known), [{ pool: 'legacy', messages: 3 }]) },
    hasSpace: () => true,
    onMoved() {},
    readCertificates: () => ({ changes: [], use() {} }),
    metrics: createMetrics(),
    logger: createLogger({ level: 'silent' }),
  })
  let isWilling = false
  live.onChange(() => {
    if (!isWilling) throw new Error('planted')
    t.same(calls, [])
  })
  await t.rejects(reload(false), { message: 'planted' })
  t.same(calls, [])
  const dry = await reload(true)
  t.same(
    dry.lines[0],
    '- pool legacy (what is queued in it, and new mail of domains that name it, will use default)',
    'a dry run says where mail will go',
  )
  isWilling = true
  t.match(await reload(false), { moved: [{ pool: 'legacy', messages: 3 }] })
  t.same(calls, [['default']])
})

t.test('a file that was there and is gone refuses a reload, one that never was does not', async (t) => {
  const folder = t.testdir({ 'sternpost.yaml': 'version: 1\nhostname: mx.example.net\n', 'pools.yaml': POOLS })
  const shippedFolder = fileURLToPath(new URL('../../config', import.meta.url))
  const overrides = { 'listen.http': [], 'listen.submission': [], 'delivery.allow_private_addresses': true }
  const load = () => loadConfiguration({ folder, shippedFolder, overrides, offline: true, neededSecrets: 'none' })
  const live = createLiveConfiguration(load())
  const { reload } = createReload({
    live,
    load,
    store: { moveOrphans: async () => [] },
    hasSpace: () => true,
    onMoved() {},
    readCertificates: () => ({ changes: [], use() {} }),
    metrics: createMetrics(),
    logger: createLogger({ level: 'silent' }),
  })
  rmSync(join(folder, 'pools.yaml'))
  const file = join(folder, 'pools.yaml')
  const refusal = await reload(false).catch((thrown: unknown) => thrown)
  t.match(refusal, { mistakes: [{ file, severity: 'error', message: /^is gone since/ }] })
  t.ok(live.current().pools.pools['mine'], 'what runs goes on')
  await live.replace(load())
  t.ok((await reload(false)).warnings.some(({ message }) => /is used in its place/.test(message)))
})

t.test('mail that comes into a pool by hand while a reload removes it goes on to the default pool', async (t) => {
  const kept = poolOf([warmed('127.0.0.11')])
  const live = createLiveConfiguration(withPools({ default: kept, legacy: poolOf([warmed('127.0.0.12')]) }))
  const calls: unknown[] = []
  const parts = {
    live,
    store: {
      async actOnQueue() {
        await live.replace(withPools({ default: kept }))
        return { messages: 2, queued: { keys: [], unroutedDomains: [] } }
      },
      moveOrphans: async (...asked: unknown[]) => (calls.push(asked), []),
    },
    clock: { now: () => 0 },
    dispatcher: { noteQueued() {}, wake: () => void calls.push('wake') },
    warmup: {},
    health: {},
    logLevel: {},
  }
  const { actOnQueue } = createAdministration(parts as unknown as Parameters<typeof createAdministration>[0])
  t.equal(await actOnQueue({ kind: 'move', pool: 'legacy' }, {}, false), 2)
  t.same(calls, [[['default'], 'default'], 'wake'])
})
