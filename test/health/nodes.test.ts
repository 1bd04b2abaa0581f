/** What `doctor` says of several nodes, and which IPs a node looks at. */
import t from 'tap'
import { checkNodes } from '../../src/health/checks/check-nodes.ts'
import type { CheckWorld } from '../../src/health/checks/world.ts'
import { checkWorld, type CheckWorldParts } from '../../src/operations/check-world.ts'
import type { NodeRecord } from '../../src/store/records/node-records.ts'

const LIVING: NodeRecord = {
  nodeId: 'a',
  epoch: 1,
  lastCommit: 1,
  state: 'living',
  isDraining: false,
  version: '1.0.0',
  configHash: 'same',
  startedAt: 0,
  beatAt: 0,
  endedBy: null,
}

const seenBy = async (nodeId: string, nodes: NodeRecord[]): Promise<string[]> => {
  const configuration = { server: { cluster: { ip_hook: null } } }
  const server = { nodes: async () => ({ nodeId, nodes, owners: [], problems: [] }) }
  const findings = await checkNodes.run({ configuration, ips: [], server } as unknown as CheckWorld)
  return findings.flatMap(({ result, subject, seen }) => (result === 'ok' ? [] : [`${result} ${subject} ${seen}`]))
}

t.test('a node that drains says so itself, and others say it of it', async (t) => {
  const nodes = [LIVING, { ...LIVING, nodeId: 'b', isDraining: true }]
  for (const node of ['a', 'b']) t.same(await seenBy(node, nodes), ['warn b it drains: it takes no mail'])
})

t.test('another configuration is a finding, and of another version that it is one', async (t) => {
  const other = { ...LIVING, nodeId: 'b', configHash: 'other' }
  t.same(await seenBy('a', [LIVING, other]), ['warn b its configuration differs from that of a'])
  const older = { ...other, version: '0.9.0' }
  t.same(await seenBy('a', [LIVING, older]), ['warn b its version is 0.9.0, that of a 1.0.0'])
})

t.test('an IP that another node sends from is looked at there, and here when it is asked for by name', (t) => {
  const ips = ['192.0.2.1', '192.0.2.2'].map((address) => ({ address, source: address, hostname: '', enabled: true }))
  const parts = {
    live: { current: () => ({ pools: { pools: { default: { ips } } } }) },
    nodes: { nodeId: 'a', problems: () => [], isElsewhere: (ip: string) => ip === '192.0.2.2' },
    warmup: {},
  } as unknown as CheckWorldParts
  const looked = (ip: string | null): string[] =>
    checkWorld(parts, { checks: null, ip, domain: null }, false).ips.map(({ address }) => address)
  t.same([looked(null), looked('192.0.2.2')], [['192.0.2.1'], ['192.0.2.2']])
  t.end()
})
