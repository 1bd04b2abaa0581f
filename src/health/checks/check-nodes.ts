/** Several nodes on one PostgreSQL: do all live, do they agree, and may their IPs move (health/README.md "Checks")? */
import { checkOf, type HealthFinding } from './check.ts'

const NODES = checkOf(
  'nodes',
  'A node that is gone, or that differs from the others, sends less or otherwise than you think.',
)

export const checkNodes = NODES.onServer(async (server, { configuration, ips }) => {
  const { nodeId, nodes, problems } = await server.nodes()
  if (nodeId === null) return [NODES.skip(null, 'there is one node, with SQLite')]
  const findings: HealthFinding[] = []
  const living = nodes.filter(({ state }) => state === 'living')
  const own = nodes.find((node) => node.nodeId === nodeId)
  for (const node of nodes) {
    if (node.state === 'dead') {
      const fix = `start it again, or: sternpost node forget ${node.nodeId}`
      findings.push(NODES.fail(node.nodeId, `declared dead by ${node.endedBy ?? 'another node'}`, fix))
    }
    if (node.state !== 'living' || own === undefined) continue
    if (node.isDraining) {
      findings.push(NODES.warn(node.nodeId, 'it drains: it takes no mail', `sternpost node drain ${node.nodeId} --end`))
    }
    if (node.version !== own.version) {
      // Another version has other settings by itself.
      const seen = `its version is ${node.version}, that of ${nodeId} ${own.version}`
      findings.push(NODES.warn(node.nodeId, seen, 'upgrade the older one: once it has ended it may not start again'))
    } else if (node.configHash !== own.configHash) {
      const fix =
        'compare sternpost.yaml, providers.yaml, bounces.yaml, warmup.yaml, pool names and the master key of both'
      findings.push(NODES.warn(node.nodeId, `its configuration differs from that of ${nodeId}`, fix))
    }
  }
  for (const { ip, problem } of problems) {
    findings.push(
      NODES.fail(ip, `it could not be taken: ${problem}`, 'run the hook by hand; sternpost logs --level warn'),
    )
  }
  const names = living.map((node) => node.nodeId).join(', ')
  const still = configuration.server.cluster.ip_hook === null && living.length > 1 && ips.length > 0
  const stays = `; without cluster.ip_hook these IPs stay where they are: ${ips.map(({ address }) => address).join(', ')}`
  return [NODES.ok(null, `${living.length} live: ${names}${still ? stays : ''}`), ...findings]
})
