/** What an administrator is told of a change, and which keys of it a running server follows. */
import t, { type Test } from 'tap'
import { changeLine, configurationDiff, withLiveKeys } from '../../src/config/configuration-diff.ts'
import type { Configuration } from '../../src/config/load-configuration.ts'
import { folderWith, load, overrides } from './folders.ts'

const POOLS = 'version: 1\ndefault_pool: a\npools:\n'
const FIRST = 'address: 203.0.113.9, hostname: a.example'
const SECOND = '{ address: 203.0.113.10, hostname: b.example }'
const BEFORE = { 'pools.yaml': `${POOLS}  a: { ips: [{ ${FIRST} }] }\n  b: { ips: [${SECOND}] }\n` }

/** The lines from one set of files to another; what is not given is shipped. */
function linesOf(t: Test, after: Record<string, string>, before: Record<string, string> = BEFORE): string[] {
  const settings = overrides(t)
  return configurationDiff(configurationOf(t, before, settings), configurationOf(t, after, settings)).map(changeLine)
}

function configurationOf(t: Test, files: Record<string, string>, settings: Record<string, unknown>): Configuration {
  return load({ folder: folderWith(t, files), overrides: settings, neededSecrets: 'none' })
}

const server = (text: string): Record<string, string> => ({
  ...BEFORE,
  'sternpost.yaml': `version: 1\nhostname: mx.example.net\n${text}`,
})

const CHANGES: [what: string, after: Record<string, string>, expected: string[]][] = [
  ['nothing', BEFORE, []],
  ['the order of keys', { 'pools.yaml': `${POOLS}  b: { ips: [${SECOND}] }\n  a: { ips: [{ ${FIRST} }] }\n` }, []],
  [
    'a weight',
    { 'pools.yaml': `${POOLS}  a: { ips: [{ ${FIRST}, weight: 5 }] }\n  b: { ips: [${SECOND}] }\n` },
    ['~ ip 203.0.113.9 weight 100 -> 5'],
  ],
  [
    'a new IP',
    {
      'pools.yaml':
        `${POOLS}  a: { ips: [{ ${FIRST} }, { address: 203.0.113.11, hostname: c.example }] }\n` +
        `  b: { ips: [${SECOND}] }\n`,
    },
    ['+ ip 203.0.113.11 in a'],
  ],
  [
    'a pool that is gone',
    { 'pools.yaml': `${POOLS}  a: { ips: [{ ${FIRST} }] }\n` },
    ['- pool b', '- ip 203.0.113.10 of b'],
  ],
  [
    'an IP that moves',
    { 'pools.yaml': `${POOLS}  a: { ips: [{ ${FIRST} }, ${SECOND}] }\n` },
    ['- pool b', '~ ip 203.0.113.10 pool b -> a'],
  ],
  [
    'a new pool',
    { 'pools.yaml': `${BEFORE['pools.yaml']}  c: { ips: [{ address: 203.0.113.11, hostname: c.example }] }\n` },
    ['+ pool c', '+ ip 203.0.113.11 in c'],
  ],
  [
    'what a pool does',
    { 'pools.yaml': BEFORE['pools.yaml'].replace('a: {', 'a: { overflow: reject,') },
    ['~ pool a overflow spill -> reject'],
  ],
  [
    'the default pool',
    { 'pools.yaml': BEFORE['pools.yaml'].replace('default_pool: a', 'default_pool: b') },
    ['~ pools.default_pool a -> b'],
  ],
  [
    'a limit of a provider',
    { ...BEFORE, 'providers.d/10-own.yaml': 'providers: { google: { connections: 3 } }\n' },
    ['~ providers.providers.google.connections 5 -> 3'],
  ],
  [
    'a gate of a curve',
    { ...BEFORE, 'warmup.d/10-own.yaml': 'curves: { own: { stages: [50, 100] } }\n' },
    ['+ warmup.curves.own'],
  ],
  [
    'durations and rates, as the files write them',
    { 'pools.yaml': BEFORE['pools.yaml'].replace('a: {', 'a: { max_defer: 90m, rate: 20000/hour,') },
    ['~ pool a max_defer 1d -> 90m', '~ pool a rate none -> 20000/hour'],
  ],
  [
    'one rule of many',
    { ...BEFORE, 'providers.d/10-own.yaml': 'replies: [{ id: google-detected, for: 2h }]\n' },
    ['~ providers.replies.google-detected.for 1h -> 2h'],
  ],
  [
    'one stage of many',
    {
      ...BEFORE,
      'warmup.d/10-own.yaml': `curves: { standard: { stages: [50, 100, 200, 350, 500, 750, 1000, 1500, 2000,
  3000, 4000, 5000, 6500, 8000, 10000, 12500, 15000, 18000, 22000, 26000, 30000, 35000, 40000, 45000, 50000, 60000,
  70000, 80000, 90000, 95000] } }\n`,
    },
    ['~ warmup.curves.standard.stages[29] 100000 -> 95000'],
  ],
  [
    'what is read once',
    { 'pools.yaml': BEFORE['pools.yaml'].replace(FIRST, `${FIRST}, warmed: true`) },
    [
      '~ ip 203.0.113.9 warmed false -> true' +
        ' (no effect on a known IP; use: sternpost ip warmup complete|restart 203.0.113.9)',
    ],
  ],
]

t.test('every change has its line', async (t) => {
  for (const [what, after, expected] of CHANGES) t.strictSame(linesOf(t, after), expected, what)
})

t.test('of sternpost.yaml some keys are followed, all others say that they need a restart', async (t) => {
  t.strictSame(linesOf(t, server('delivery: { retry: [1m, 2m] }\n'), server('delivery: { retry: [1m] }\n')), [
    '~ delivery.retry 1m -> 1m, 2m',
  ])
  t.strictSame(linesOf(t, server('dns: { timeout: 3s }\n'), server('')), [
    '! dns.timeout changed: takes effect after a restart',
  ])
  const listed = (zone: string): Record<string, string> => server(`health: { blocklists: [${zone}] }\n`)
  t.strictSame(linesOf(t, listed('a.example'), listed('b.example')), [
    '~ health.blocklists ["b.example"] -> ["a.example"]',
  ])
  t.strictSame(linesOf(t, server('retention: { messages: 30d }\nhealth: { interval: 30m }\n'), server('')), [
    '~ retention.messages 90d -> 30d',
    '~ health.interval 1h -> 30m',
  ])
})

t.test('a secret is never shown', async (t) => {
  const settings = overrides(t)
  const before = configurationOf(t, BEFORE, settings)
  const secrets = { ...before.server.secrets, master_key: Buffer.alloc(32, 9) }
  const lines = configurationDiff(before, { ...before, server: { ...before.server, secrets } }).map(changeLine)
  t.strictSame(lines, ['! secrets.master_key changed: takes effect after a restart'])
})

t.test('in force after a reload: the new files, with the old values of what is not followed', async (t) => {
  const settings = overrides(t)
  const before = configurationOf(t, server('delivery: { retry: [1m], drain: 20s }\ndns: { timeout: 4s }\n'), settings)
  const after = configurationOf(
    t,
    {
      ...server('delivery: { retry: [5m], drain: 30s }\ndns: { timeout: 3s }\n'),
      'pools.yaml': `${POOLS}  a: { ips: [{ ${FIRST} }] }\n`,
    },
    settings,
  )
  const live = withLiveKeys(before, after)
  t.strictSame(live.pools, after.pools)
  t.strictSame(live.server.delivery.retry, after.server.delivery.retry)
  t.equal(live.server.delivery.drain, before.server.delivery.drain)
  t.equal(live.server.dns.timeout, before.server.dns.timeout)
  t.ok(Object.isFrozen(live.server.delivery))
  // Against what is in force, the same files have only what still waits for a restart.
  t.strictSame(
    configurationDiff(live, after).map(({ kind }) => kind),
    ['restart', 'restart'],
  )
})
