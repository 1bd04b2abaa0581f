/** `sternpost node`: the nodes that work with one database (systemd/README.md "More than one machine"). */
import type { Command } from 'commander'
import { drainedNodeSchema, forgottenNodeSchema, nodesSchema, type NodeJson } from '../../api/node.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { ask } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { printList, printNote, printResult } from '../shared/print.ts'
import { preciseTime, sheetText, type Columns } from '../shared/text.ts'
import { addVerb, type VerbFlags } from '../shared/verb.ts'

const PATH = '/v1/admin/nodes'

export function addNodeCommands(program: Command): void {
  const node = program.command('node').description('nodes that work with one database')
  addVerb(node, 'list', 'list them: who lives, and who sends from which IPs').action(list)
  addVerb(node, 'show <node>', 'show a node', 'mail-1').action(show)
  addVerb(node, 'drain <node>', 'let a node take no mail, finish, and let its IPs go', 'mail-1')
    .option('--end', 'it works again')
    .action(drain)
  addVerb(node, 'forget <node>', 'forget a node that does not live', 'mail-1').action(forget)
}

const stateOf = ({ state, draining }: NodeJson): string => (draining && state === 'living' ? 'draining' : state)

const COLUMNS: Columns<NodeJson> = {
  NODE: ({ node_id: id, answers }) => (answers ? `${id} (here)` : id),
  STATE: stateOf,
  IPS: ({ ips }) => ips.join(', '),
  VERSION: ({ version }) => version,
  SEEN: ({ seen_at: at }) => preciseTime(at),
  'DECLARED DEAD BY': ({ ended_by: by }) => by,
}

async function list(flags: VerbFlags): Promise<void> {
  const { nodes, problems } = await ask(flags, nodesSchema, `GET ${PATH}`)
  printList(flags, COLUMNS, nodes, 'There is one node, with SQLite.')
  for (const { ip, problem } of problems) printNote(flags, `${ip} could not be taken: ${problem}`)
}

async function show(name: string, flags: VerbFlags): Promise<void> {
  const { nodes } = await ask(flags, nodesSchema, `GET ${PATH}`)
  const node = nodes.find(({ node_id: id }) => id === name)
  if (node === undefined) {
    const names = nodes.map(({ node_id: id }) => id).join(', ')
    throw new ProcessExit(EXIT.failed, `sternpost: there is no node "${name}"; there are ${names}.`)
  }
  printResult(flags, node, () =>
    sheetText(`${node.node_id}  ${stateOf(node)}`, [
      ['sends from', node.ips.length === 0 ? 'no IP' : node.ips.join(', ')],
      ['version', node.version],
      ['configuration', node.config_hash],
      ['started', node.started_at === null ? null : preciseTime(node.started_at)],
      ['last beat', preciseTime(node.seen_at)],
      ['declared dead by', node.ended_by],
    ]),
  )
}

async function drain(name: string, flags: VerbFlags & { end?: boolean }): Promise<void> {
  const path = `${PATH}/${encodeURIComponent(name)}/drain` as const
  const drained = await ask(flags, drainedNodeSchema, `POST ${path}`, { draining: flags.end !== true })
  printResult(flags, drained, () => `${name} ${drained.draining ? 'drains' : 'works again'}\n`)
  if (!drained.draining) return
  printNote(flags, `It has drained when it sends from no IP: ${commandText(flags, { verb: 'node list' })}`)
}

async function forget(name: string, flags: VerbFlags): Promise<void> {
  const path = `${PATH}/${encodeURIComponent(name)}` as const
  const forgotten = await ask(flags, forgottenNodeSchema, `DELETE ${path}`)
  printResult(flags, forgotten, () => `${name} is forgotten\n`)
}
