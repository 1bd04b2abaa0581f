/**
 * `sternpost path`: what receivers have brought upon the paths from our IPs to them (egress/README.md "Shaping"):
 * limits, waits and suspensions, with their cause and end; and how an operator lifts them.
 */
import type { Command } from 'commander'
import { pathSchema, resumedPathsSchema, type PathHoldJson, type PathJson } from '../../api/queue.ts'
import { ask, askRows, withQuery } from '../shared/api-client.ts'
import { printNote, printResult } from '../shared/print.ts'
import { columnsText, countOf, localTime, type Columns } from '../shared/text.ts'
import { addVerb, isConfirmed, type ConsentFlags, type Given, type VerbFlags } from '../shared/verb.ts'

type FilterFlags = Given<'ip' | 'route'>
type ResumeFlags = ConsentFlags & FilterFlags & Given<'pool' | 'domain'>

export function addPathCommands(program: Command): void {
  const path = program.command('path').description('paths from an IP to a mailbox provider: limits and suspensions')
  const listed =
    'list the paths that are limited, wait or are suspended, with cause and end; of several nodes, those of this one'
  withFilter(addVerb(path, 'list', listed, '--ip 203.0.113.10')).action(list)
  const resumed =
    'lift what holds paths back, of several nodes on this one; the next suspension is as long as it would have been'
  withFilter(addVerb(path, 'resume', resumed, '--ip 203.0.113.10 --route google --yes'))
    .option('--pool <name>', 'what holds back mail of a sending domain from this pool')
    .option('--domain <name>', 'what holds back mail of this sending domain alone, as the list names it')
    .option('--yes', 'do it')
    .action(resume)
}

function withFilter(verb: Command): Command {
  return verb.option('--ip <address>', 'from this IP').option('--route <name>', 'to this route, as the list names it')
}

async function list(flags: VerbFlags & FilterFlags): Promise<void> {
  const { ip, route } = flags
  const paths = await askRows(flags, pathSchema, withQuery('/v1/admin/paths', { ip, route }))
  // A path may be under several rules.
  const rows = paths.flatMap((path) => path.holds.map((hold) => ({ path, hold })))
  printResult(flags, paths, () => columnsText(COLUMNS, rows))
  if (paths.length === 0) printNote(flags, 'Nothing is held back there.')
}

const COLUMNS: Columns<{ path: PathJson; hold: PathHoldJson }> = {
  STATUS: ({ path }) => path.status,
  FROM: ({ path }) => path.ip ?? `pool ${path.pool ?? ''}`,
  ISP: ({ path }) => path.isp,
  ROUTE: ({ path }) => path.route,
  DOMAIN: ({ path }) => path.domain,
  UNTIL: ({ hold }) => (hold.until === null ? 'resumed' : localTime(hold.until)),
  LIMIT: ({ hold: { kind, rate, connections, messages_per_connection: messages } }) =>
    [
      kind === 'careful' ? 'one message after the other' : null,
      rate,
      connections === null ? null : `${connections} connections`,
      messages === null ? null : `${messages} per connection`,
    ]
      .filter((text) => text !== null)
      .join(', '),
  RULE: ({ hold }) => hold.rule,
  CAUSE: ({ hold }) => hold.cause,
}

async function resume(flags: ResumeFlags): Promise<void> {
  const { ip, route, pool, domain } = flags
  const body = { ip, route, pool, domain, dry_run: flags.yes !== true }
  const resumed = await ask(flags, resumedPathsSchema, 'POST /v1/admin/paths/resume', body)
  const where = resumed.node === null || ip !== undefined ? '' : ` on the node ${resumed.node}`
  const count = `${countOf(resumed.paths, 'path')}${where}`
  if (where !== '') printNote(flags, 'Other nodes keep what holds their paths back: run this there, too.')
  if (resumed.dry_run && resumed.paths > 0) {
    const command = { verb: 'path resume', options: { ip, route, pool, domain } }
    isConfirmed(flags, { document: resumed, text: `${count} would be resumed`, command })
    return
  }
  printResult(flags, resumed, () => `${count} resumed\n`)
}
