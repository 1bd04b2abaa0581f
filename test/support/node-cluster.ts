/**
 * Several servers on one PostgreSQL, each with an egress IP of its own at first; then every one may take every IP, as
 * floating addresses are. Their mail goes to one sink.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { apiClient, type ApiClient } from './api-client.ts'
import { startCountingSink, type CountingSink } from './counting-sink.ts'
import { startPostgres, type PostgresCluster } from './postgres-cluster.ts'
import { startServe, type ServeOptions, type ServeProcess } from './serve-process.ts'
import { FAST, zoneOf } from './many-destinations.ts'
import { prepareSender } from './two-ips.ts'
import { startZone } from './zone.ts'
import { startPostgresProxy, type PostgresProxy } from './postgres-proxy.ts'
import { until } from './until.ts'

export interface ClusterNode {
  nodeId: string
  /** Its own at first. */
  ip: string
  server: ServeProcess
  api: ApiClient
  /** Between it and PostgreSQL. */
  proxy: PostgresProxy
}

export interface NodeCluster {
  postgres: PostgresCluster
  database: string
  sink: CountingSink
  nodes: ClusterNode[]
  /** May do everything. */
  key: string
  /** Recipient domains, each with a path of its own. */
  domains: string[]
  /** IPs by node, as the database has them. */
  owners(): Promise<Record<string, string[]>>
}

const DESTINATIONS = 20

interface NodeClusterOptions {
  count: number
  /** Of the database, by which a node reaches it; left out: through its proxy. */
  urlFor?: (database: string) => string
  /** Left out: one of its own. */
  postgres?: PostgresCluster
  /** Address of the sink and the DNS server. */
  worldAddress?: string
  ipOf?: (number: number) => string
  /** Where a node is. */
  machineOf?: (number: number) => Pick<ServeOptions, 'command' | 'httpAddress' | 'httpPort'>
  answerDelayMilliseconds?: () => number
  settings?: Record<string, Record<string, unknown>>
  /** Of each IP beside its name. */
  ofIp?: Record<string, unknown>
  files?: Record<string, unknown>
}

const loopbackIp = (number: number): string => `127.0.0.${10 + number}`

const poolsOf = (ips: readonly string[], ofIp: object) => ({
  version: 1,
  default_pool: 'default',
  pools: {
    default: { ips: ips.map((address) => ({ address, hostname: `mta${address.slice(-2)}.sternpost.test`, ...ofIp })) },
  },
})

export async function startNodeCluster(
  t: { teardown(clean: () => unknown): void },
  {
    count,
    urlFor,
    worldAddress = '127.0.0.1',
    ipOf = loopbackIp,
    machineOf = () => ({}),
    settings = {},
    ofIp = { warmed: true },
    files = {},
    answerDelayMilliseconds = () => 0,
    ...options
  }: NodeClusterOptions,
): Promise<NodeCluster> {
  const postgres = options.postgres ?? (await startPostgres(t))
  const database = await postgres.createDatabase()
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-nodes-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const sink = await startCountingSink({ address: worldAddress, answerDelayMilliseconds })
  t.teardown(() => sink.close())
  const domains = Array.from({ length: DESTINATIONS }, (_, index) => `d${index}.test`)
  const zone = await startZone(zoneOf(domains, worldAddress), 0, worldAddress)
  t.teardown(() => zone.close())
  const all = Array.from({ length: count }, (_, index) => ipOf(index + 1))
  zone.set('spf.mail.sternpost.test', { TXT: [`v=spf1 ${all.map((ip) => `ip4:${ip}`).join(' ')} -all`] })
  const servers: Omit<ClusterNode, 'api'>[] = []
  for (let number = 1; number <= count; number += 1) {
    const nodeId = `node-${number}`
    const proxy = await startPostgresProxy(postgres.port)
    t.teardown(() => proxy.close())
    const url = join(folder, nodeId)
    writeFileSync(url, urlFor?.(database) ?? postgres.url(database, proxy.port), { mode: 0o600 })
    const server = await startServe({
      ...machineOf(number),
      dnsServer: zone.server,
      deliveryPort: sink.port,
      pools: poolsOf([ipOf(number)], ofIp),
      files: {
        'sternpost.d/50-node.yaml': { node_id: nodeId },
        'providers.d/50-fast.yaml': { default: { ...FAST, in_flight: 1 } },
        ...files,
      },
      settings: {
        ...settings,
        api: { requests: 0, recipients: 0 },
        storage: { engine: 'postgres', url: { file: url } },
        // What failed while a node stood still comes again within the test.
        delivery: { uncertain_retry: '2s', retry: ['2s'], threads: 1, ...settings['delivery'] },
      },
    })
    t.teardown(() => server.remove())
    servers.push({ nodeId, ip: ipOf(number), server, proxy })
  }
  const [first] = servers
  if (first === undefined) throw new Error('one node at least')
  await prepareSender(first.server, zone)
  const key = await first.server.createKey('admin')
  const nodes = servers.map((node) => ({ ...node, api: apiClient(node.server.baseUrl, key) }))
  for (const { server, api } of nodes) {
    writeFileSync(join(server.configurationFolder, 'pools.yaml'), JSON.stringify(poolsOf(all, ofIp)))
    await api.post('/admin/reload', {})
  }
  const owners = async (): Promise<Record<string, string[]>> => {
    const rows = await postgres.query(
      `select nodes.node_id, ip_owners.ip from ip_owners join nodes on nodes.epoch = ip_owners.epoch order by 2`,
      database,
    )
    const found: Record<string, string[]> = {}
    for (const { node_id: nodeId, ip } of rows) (found[String(nodeId)] ??= []).push(String(ip))
    return found
  }
  await until('each node has its IP', async () => Object.keys(await owners()).length === count)
  return { postgres, database, sink, nodes, key, domains, owners }
}
