/** The five files of config/: every key, at its default, with a comment. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { z } from 'zod'
import { bouncesSchema } from '../../src/config/settings/bounce-rule-settings.ts'
import { followsReload } from '../../src/config/configuration-diff.ts'
import { NULL_IS_A_VALUE } from '../../src/config/source/drop-ins.ts'
import { poolsSchema } from '../../src/config/settings/pool-settings.ts'
import { providersSchema } from '../../src/config/settings/provider-settings.ts'
import { serverSchema } from '../../src/config/settings/server-settings.ts'
import { keyPositionAt, nodeAt } from '../../src/config/source/at-path.ts'
import { valueOf, type SourceNode } from '../../src/config/source/source-tree.ts'
import { warmupSchema } from '../../src/config/settings/warmup-settings.ts'
import { readYamlSource } from '../../src/config/source/yaml-source.ts'
import { load, overrides, SHIPPED } from './folders.ts'

function shippedTree(name: string): SourceNode {
  const file = join(SHIPPED, `${name}.yaml`)
  const reading = readYamlSource(file, readFileSync(file))
  if (reading.kind === 'read') return reading.tree
  throw new Error(JSON.stringify(reading.mistakes))
}

/** Paths of all keys of maps; lists and maps of named things are looked at on their own. */
function keysOf(schema: z.ZodType): string[][] {
  return pathsOf(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }), [])
}

function pathsOf(schema: unknown, path: string[]): string[][] {
  if (!isRecord(schema)) return []
  const { properties, anyOf } = schema
  if (Array.isArray(anyOf)) return anyOf.flatMap((part) => pathsOf(part, path))
  return Object.entries(isRecord(properties) ? properties : {}).flatMap(([key, below]) => {
    const own = [...path, key]
    return [own, ...pathsOf(below, own)]
  })
}

const FILES: { name: string; schema: z.ZodType }[] = [
  { name: 'sternpost', schema: serverSchema },
  { name: 'pools', schema: poolsSchema },
  { name: 'warmup', schema: warmupSchema },
  { name: 'providers', schema: providersSchema },
  { name: 'bounces', schema: bouncesSchema },
]

for (const { name, schema } of FILES) {
  t.test(`every key of ${name}.yaml is in the shipped file and has a comment`, async (t) => {
    const tree = shippedTree(name)
    const lines = readFileSync(join(SHIPPED, `${name}.yaml`), 'utf8').split('\n')
    t.match(lines[0], new RegExp(`^# yaml-language-server: .*/${name}\\.json$`), 'line 1 names the schema')
    const paths = keysOf(schema).filter((path) => nodeAt(tree, path.slice(0, -1))?.kind !== 'scalar')
    t.ok(paths.length >= 2, `${paths.length} keys`)
    for (const path of paths) {
      const line = keyPositionAt(tree, path)?.line
      t.not(line, undefined, `${path.join('.')} is there`)
      const [before = '', own = ''] = line === undefined ? [] : [lines[line - 2], lines[line - 1]]
      t.ok(own.includes(' # ') || before.trim().startsWith('#'), `${path.join('.')} has a comment`)
    }
  })
}

t.test('[restart] marks the keys of sternpost.yaml that a running server does not follow, and no others', async (t) => {
  const tree = shippedTree('sternpost')
  const lines = readFileSync(join(SHIPPED, 'sternpost.yaml'), 'utf8').split('\n')
  const isMarked = (path: readonly string[]): boolean => {
    const line = keyPositionAt(tree, path)?.line ?? 0
    const comment = [lines[line - 1] ?? '']
    for (let above = line - 2; lines[above]?.trim().startsWith('#'); above--) comment.push(lines[above] ?? '')
    return comment.join(' ').includes('[restart]') || (path.length > 1 && isMarked(path.slice(0, -1)))
  }
  const paths = keysOf(serverSchema)
  const ends = paths.filter((path) => !paths.some((other) => other.length > path.length && isBelow(other, path)))
  for (const path of ends) {
    const name = path.join('.')
    if (name !== 'version') t.equal(isMarked(path), !followsReload('sternpost', name), name)
  }
})

function isBelow(path: readonly string[], above: readonly string[]): boolean {
  return above.every((key, index) => path[index] === key)
}

t.test('every value of sternpost.yaml is the default', async (t) => {
  const shipped = serverSchema.parse(valueOf(shippedTree('sternpost')))
  t.strictSame(shipped, serverSchema.parse({ version: 1, hostname: 'sternpost.test' }))
})

t.test('the values of the other files are the defaults where a key has one', async (t) => {
  const warmup = warmupSchema.parse(valueOf(shippedTree('warmup')))
  t.strictSame(warmup.defaults, warmupSchema.parse({ version: 1, curves: {} }).defaults)
  const providers = providersSchema.parse(valueOf(shippedTree('providers')))
  t.strictSame(providers.default, providersSchema.parse({ version: 1 }).default)
  const pools = poolsSchema.parse(valueOf(shippedTree('pools')))
  const plain = poolsSchema.parse({ version: 1, default_pool: 'default', pools: { default: {} } })
  t.strictSame({ ...pools, pools: null }, { ...plain, pools: null })
  const ofPlain = plain.pools['default']
  t.strictSame({ ...pools.pools['default'], description: '', ips: [] }, ofPlain)
  const [ip] = pools.pools['default']?.ips ?? []
  const plainIps = { default: { ips: [{ address: '127.0.0.11', hostname: 'mta1.sternpost.test' }] } }
  const withIp = poolsSchema.parse({ version: 1, default_pool: 'default', pools: plainIps })
  const [plainIp] = withIp.pools['default']?.ips ?? []
  t.strictSame({ ...ip, warmed: false }, plainIp, 'the sandbox has one IP that is warm')
})

t.test('keys of pools, IPs and rules are in their file with a comment', async (t) => {
  const pools = shippedTree('pools')
  const lines = readFileSync(join(SHIPPED, 'pools.yaml'), 'utf8').split('\n')
  const plain = poolsSchema.parse({
    version: 1,
    default_pool: 'a',
    pools: { a: { ips: [{ address: '192.0.2.1', hostname: 'a.example' }] } },
  }).pools['a']
  const paths = [
    ...Object.keys(plain ?? {}).map((key) => ['pools', 'default', key]),
    ...Object.keys(plain?.ips[0] ?? {}).map((key) => ['pools', 'default', 'ips', 0, key]),
  ]
  for (const path of paths) {
    const line = keyPositionAt(pools, path)?.line ?? 0
    // The first key of a list item stands behind a comment on the line of its hyphen.
    t.match(lines[line - 2], /^\s*(- )?#/, `${path.join('.')} has a comment`)
  }
  for (const [file, key] of [
    ['providers', 'replies'],
    ['bounces', 'rules'],
  ] as const) {
    const text = readFileSync(join(SHIPPED, `${file}.yaml`), 'utf8')
    const schema = file === 'providers' ? providersSchema.shape.replies : bouncesSchema.shape.rules
    const rule = { id: 'a', match: 'a', example: 'a', do: 'suspend', for: '1h', category: 'policy' }
    const { do: action, for: time, category, ...both } = rule
    const own = file === 'providers' ? { do: action, for: time } : { category }
    const [parsed] = schema.parse([{ ...both, ...own }]) ?? []
    const limits = ['rate', 'connections', 'messages_per_connection']
    for (const name of Object.keys(parsed ?? {})) {
      const pattern = limits.includes(name) ? `^#.*\\b${name}\\b` : `^#   ${name} +\\S`
      t.match(text, new RegExp(pattern, 'm'), `${key}: ${name} is explained`)
    }
  }
})

t.test('the shipped files are valid, and the sandbox can use them', async (t) => {
  const configuration = load({ folder: SHIPPED, overrides: overrides(t) })
  t.strictSame(
    configuration.warnings.map(({ path }) => path),
    ['listen.inbound', 'delivery.allow_private_addresses'],
  )
  t.strictSame(Object.keys(configuration.pools.pools), ['default', 'warming', 'cold'])
  t.equal(Object.keys(configuration.providers.providers).length, 24, 'all blocks of egress/README.md "Providers"')
  t.equal(configuration.providers.replies.length, 41, 'all rules of egress/README.md "The shipped rules"')
  t.equal(configuration.providers.replies.at(-1)?.provider, 'any', 'general rules come last')
  t.strictSame(configuration.providers.providers['barracuda'], {
    isp: 'barracuda',
    mx_suffixes: ['barracudanetworks.com'],
    domains: [],
    connections: 10,
    messages_per_connection: 15,
    in_flight: 4,
    rate: { count: 100, per_milliseconds: 1_000 },
    connection_rate: { count: 100, per_milliseconds: 60_000 },
    tls: 'required',
    idle: 15_000,
    failures: 10,
    scope: 'provider',
  })
  for (const [curve, sum] of [
    ['standard', 736_450],
    ['conservative', 588_720],
    ['fast', 4_478_700],
  ] as const) {
    const stages = configuration.warmup.curves[curve]?.stages ?? []
    t.equal(
      stages.reduce((total, stage) => total + stage, 0),
      sum,
      `${curve} adds up as egress/README.md "Curves" says`,
    )
  }
})

t.test('null stays a value in drop-ins exactly where it means something', async (t) => {
  const defaults = serverSchema.parse({ version: 1, hostname: 'a.example' })
  for (const path of keysOf(serverSchema)) {
    const value = path.reduce<unknown>((object, key) => (isRecord(object) ? object[key] : undefined), defaults)
    const withNull = path.reduceRight<unknown>((below, key) => ({ [key]: below }), null)
    const whole = { version: 1, hostname: 'a.example', ...(isRecord(withNull) ? withNull : {}) }
    const takesNull = serverSchema.safeParse(whole).success
    t.equal(takesNull && value !== null, NULL_IS_A_VALUE.includes(path.join('.')), path.join('.'))
  }
})

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}
