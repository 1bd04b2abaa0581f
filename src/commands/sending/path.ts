/**
 * `sternpost path`: what receivers have brought upon the paths from our IPs to them (egress/README.md "Shaping"):
 * limits, waits and suspensions, with their cause and end; and how an operator lifts them.
 */
import type { PathHoldJson, PathJson, ResumedPathsJson } from '../../api/queue.ts'
import type { Command } from 'commander'
import { callServer, withQuery } from '../shared/api-client.ts'
import { isTerminal, localTime, printNote, printResult, tableText } from '../shared/print.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, isConfirmed, readAnswer, type ConsentFlags, type VerbFlags } from '../shared/verb.ts'

interface FilterFlags {
  ip?: string
  route?: string
}

export function addPathCommands(program: Command): void {
  const path = program.command('path').description('paths from an IP to a mailbox provider: limits and suspensions')
  withFilter(
    addVerb(path, {
      words: 'list',
      description: 'list the paths that are limited, wait or are suspended, with cause and end',
      example: 'sternpost path list --ip 203.0.113.10',
    }),
  ).action(list)
  withFilter(
    addVerb(path, {
      words: 'resume',
      description: 'lift what holds paths back; the next suspension is as long as it would have been',
      example: 'sternpost path resume --ip 203.0.113.10 --route google --yes',
    }),
  )
    .option('--yes', 'do it')
    .action(resume)
}

function withFilter(verb: ReturnType<typeof addVerb>): ReturnType<typeof addVerb> {
  return verb.option('--ip <address>', 'from this IP').option('--route <name>', 'to this route, as the list names it')
}

const PATH_HEADS = ['STATUS', 'FROM', 'ISP', 'ROUTE', 'DOMAIN', 'UNTIL', 'LIMIT', 'RULE', 'CAUSE']

async function list(flags: VerbFlags & FilterFlags): Promise<void> {
  const { ip, route } = flags
  const path = withQuery('/v1/admin/paths', { ip, route })
  const answer = await callServer(serverAddress(flags), { method: 'GET', path })
  const entries: unknown[] = Array.isArray(answer) ? answer : []
  const paths = entries.map((entry) => readAnswer<PathJson>(entry, 'route', 'status', 'holds'))
  printResult(flags, paths, () => tableText(PATH_HEADS, paths.flatMap(pathRows), isTerminal()))
  if (paths.length === 0) printNote(flags, 'Nothing is held back there.')
}

/** One for each hold: a path may be under several rules. */
function pathRows({ status, ip, pool, isp, route, domain, holds }: PathJson): string[][] {
  return holds.map(({ until, rule, cause, ...limit }) => [
    status,
    ip ?? `pool ${pool ?? ''}`,
    isp,
    route,
    domain ?? '',
    until === null ? 'resumed' : localTime(until),
    limitText(limit),
    rule ?? '',
    cause,
  ])
}

type HeldLimits = Pick<PathHoldJson, 'rate' | 'connections' | 'messages_per_connection'>

function limitText(hold: HeldLimits): string {
  const { rate, connections, messages_per_connection: messages } = hold
  return [
    rate,
    connections === null ? null : `${connections} connections`,
    messages === null ? null : `${messages} per connection`,
  ]
    .filter((text) => text !== null)
    .join(', ')
}

async function resume(flags: ConsentFlags & FilterFlags): Promise<void> {
  const { ip, route } = flags
  const body = { ip, route, dry_run: flags.yes !== true }
  const call = { method: 'POST' as const, path: '/v1/admin/paths/resume', body }
  const resumed = readAnswer<ResumedPathsJson>(await callServer(serverAddress(flags), call), 'paths', 'dry_run')
  if (resumed.dry_run && resumed.paths > 0) {
    const filter = `${ip === undefined ? '' : ` --ip ${ip}`}${route === undefined ? '' : ` --route ${route}`}`
    const text = `${countText(resumed.paths)} would be resumed`
    isConfirmed(flags, { document: resumed, text, command: `sternpost path resume${filter}` })
    return
  }
  printResult(flags, resumed, () => `${countText(resumed.paths)} resumed\n`)
}

function countText(paths: number): string {
  return `${paths} path${paths === 1 ? '' : 's'}`
}
