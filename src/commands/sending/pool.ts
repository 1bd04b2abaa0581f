/**
 * `sternpost pool`: the pools as the running server has them, with the state of their IPs (config/README.md
 * "pools.yaml").
 */
import type { Command } from 'commander'
import { poolSchema, type PoolJson } from '../../api/queue.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { askRows } from '../shared/api-client.ts'
import { printResult } from '../shared/print.ts'
import { columnsText, preciseTime, sheetText, type Columns } from '../shared/text.ts'
import { addVerb, type VerbFlags } from '../shared/verb.ts'

export function addPoolCommands(program: Command): void {
  const pool = program.command('pool').description('pools of IPs')
  addVerb(pool, 'list', 'list the pools').action(list)
  addVerb(pool, 'show <name>', 'show a pool with its IPs', 'default').action(show)
}

const POOL_COLUMNS: Columns<PoolJson> = {
  POOL: (pool) => (pool.default ? `${pool.name} (default)` : pool.name),
  IPS: ({ ips }) => ips.length,
  SENDING: ({ ips }) => ips.filter(({ sends }) => sends !== 'nothing').length,
  WAITING: ({ waiting }) => waiting,
  OVERFLOW: overflowText,
  DESCRIPTION: ({ description }) => description,
}
const IP_COLUMNS: Columns<PoolJson['ips'][number]> = {
  IP: ({ ip }) => ip,
  STATUS: ({ status }) => status,
  SENDS: ({ sends }) => sends,
  WEIGHT: ({ weight }) => weight,
  HOSTNAME: ({ hostname }) => hostname,
  REASON: ({ reason }) => reason,
  UNTIL: ({ until }) => (until === null ? null : preciseTime(until)),
}

async function list(flags: VerbFlags): Promise<void> {
  const pools = await askRows(flags, poolSchema, '/v1/admin/pools')
  printResult(flags, pools, () => columnsText(POOL_COLUMNS, pools))
}

async function show(name: string, flags: VerbFlags): Promise<void> {
  const pools = await askRows(flags, poolSchema, '/v1/admin/pools')
  const pool = pools.find((each) => each.name === name)
  if (pool === undefined) {
    const names = pools.map((each) => each.name).join(', ')
    throw new ProcessExit(EXIT.failed, `sternpost: there is no pool "${name}"; there are ${names}.`)
  }
  printResult(flags, pool, () => `${poolText(pool)}\n${columnsText(IP_COLUMNS, pool.ips)}`)
}

function overflowText({ overflow, overflow_pool: target }: PoolJson): string {
  return target === null ? overflow : `${overflow} to ${target}`
}

function poolText(pool: PoolJson): string {
  return sheetText(`${pool.name}${pool.default ? '  default' : ''}`, [
    ['description', pool.description],
    ['overflow', overflowText(pool)],
    ['max_defer', pool.max_defer],
    ['warmup', pool.require_warmup ? 'required' : 'not required: cold IPs send without a cap'],
    ['connections', pool.connections_max === null ? null : `at most ${pool.connections_max}`],
    ['rate', pool.rate],
    ['waiting', `${pool.waiting} first attempts`],
  ])
}
