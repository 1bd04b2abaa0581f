/**
 * `sternpost pool`: the pools as the running server has them, with the state of their IPs (config/README.md
 * "pools.yaml").
 */
import type { PoolJson } from '../../api/queue.ts'
import type { Command } from 'commander'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { callServer } from '../shared/api-client.ts'
import { isTerminal, preciseTime, printResult, sheetText, tableText } from '../shared/print.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'

export function addPoolCommands(program: Command): void {
  const pool = program.command('pool').description('pools of IPs')
  addVerb(pool, { words: 'list', description: 'list the pools', example: 'sternpost pool list' }).action(list)
  addVerb(pool, {
    words: 'show <name>',
    description: 'show a pool with its IPs',
    example: 'sternpost pool show default',
  }).action(show)
}

const POOL_HEADS = ['POOL', 'IPS', 'SENDING', 'WAITING', 'OVERFLOW', 'DESCRIPTION']
const IP_HEADS = ['IP', 'STATUS', 'SENDS', 'WEIGHT', 'HOSTNAME', 'REASON', 'UNTIL']

async function list(flags: VerbFlags): Promise<void> {
  const pools = await poolsOf(flags)
  printResult(flags, pools, () => tableText(POOL_HEADS, pools.map(poolRow), isTerminal()))
}

async function show(name: string, flags: VerbFlags): Promise<void> {
  const pools = await poolsOf(flags)
  const pool = pools.find((each) => each.name === name)
  if (pool === undefined) {
    const names = pools.map((each) => each.name).join(', ')
    throw new ProcessExit(EXIT.failed, `sternpost: there is no pool "${name}"; there are ${names}.`)
  }
  printResult(flags, pool, () => poolReport(pool))
}

async function poolsOf(flags: VerbFlags): Promise<PoolJson[]> {
  const answer = await callServer(serverAddress(flags), { method: 'GET', path: '/v1/admin/pools' })
  const entries: unknown[] = Array.isArray(answer) ? answer : []
  return entries.map((entry) => readAnswer<PoolJson>(entry, 'name', 'ips', 'overflow'))
}

function poolRow(pool: PoolJson): string[] {
  const { name, ips, waiting, description } = pool
  const sending = ips.filter(({ sends }) => sends !== 'nothing').length
  const mark = pool.default ? `${name} (default)` : name
  return [mark, String(ips.length), String(sending), String(waiting), overflowText(pool), description]
}

function overflowText({ overflow, overflow_pool: target }: PoolJson): string {
  return target === null ? overflow : `${overflow} to ${target}`
}

function poolReport(pool: PoolJson): string {
  const { name, connections_max: connections, ips } = pool
  const head = sheetText(`${name}${pool.default ? '  default' : ''}`, [
    ['description', pool.description],
    ['overflow', overflowText(pool)],
    ['max_defer', pool.max_defer],
    ['warmup', pool.require_warmup ? 'required' : 'not required: cold IPs send without a cap'],
    ['connections', connections === null ? null : `at most ${connections}`],
    ['rate', pool.rate],
    ['waiting', `${pool.waiting} first attempts`],
  ])
  return `${head}\n${tableText(IP_HEADS, ips.map(ipRow), isTerminal())}`
}

function ipRow({ ip, status, sends, weight, hostname, reason, until }: PoolJson['ips'][number]): string[] {
  return [ip, status, sends, String(weight), hostname, reason ?? '', until === null ? '' : preciseTime(until)]
}
