/**
 * `sternpost ip`: dedicated IPs, their warmup and their daily volume (http/README.md "IPs", commands/README.md "The
 * command line").
 */
import type { IpJson, IpNoteJson, SendDayJson } from '../../api/ip.ts'
import type { Command } from 'commander'
import { callServer, ifPermitted, listFromServer, withQuery, type ApiCall } from '../shared/api-client.ts'
import { addForecastVerb, addWarmupVerbs } from './ip-warmup.ts'
import { IP_HEADS, ipReport, ipRow, type ShownIp } from './ip-report.ts'
import { isTerminal, printNote, printResult, tableText, terminalWidth } from '../shared/print.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'

const EXAMPLE_IP = '203.0.113.10'
/** Of the audit. */
const SHOWN_NOTES = '10'
const PROVIDER_HELP = 'mail to this provider alone: the name of its block, see sternpost provider list'

export function addIpCommands(program: Command): void {
  const ip = program.command('ip').description('dedicated IPs and their warmup')
  addVerb(ip, { words: 'list', description: 'list the IPs of all pools', example: 'sternpost ip list' }).action(list)
  addVerb(ip, {
    words: 'show <ip>',
    description: 'show an IP with its warmup, and a chart of what it may send and sent by UTC day',
    example: `sternpost ip show ${EXAMPLE_IP}`,
  }).action(show)
  addVerb(ip, {
    words: 'suspend <ip>',
    description: 'let nothing leave from an IP, or from it to one provider, until it is resumed',
    example: [
      `sternpost ip suspend ${EXAMPLE_IP} --reason 'on a blocklist'`,
      `sternpost ip suspend ${EXAMPLE_IP} --provider outlook --reason 'delisting asked for'`,
    ].join('\n'),
  })
    .option('--provider <id>', PROVIDER_HELP)
    .option('--reason <text>', 'for those who look at it later, at most 200 characters')
    .action(suspend)
  addVerb(ip, {
    words: 'resume <ip>',
    description: 'end the suspension of an IP, and lift what holds its paths back',
    example: [`sternpost ip resume ${EXAMPLE_IP}`, `sternpost ip resume ${EXAMPLE_IP} --provider outlook`].join('\n'),
  })
    .option('--provider <id>', PROVIDER_HELP)
    .action(resume)
  const warmup = ip.command('warmup').description('the warmup of an IP')
  addWarmupVerbs(warmup)
  addForecastVerb(warmup)
}

async function list(flags: VerbFlags): Promise<void> {
  const entries = await listFromServer(serverAddress(flags), '/v1/ips')
  const ips = entries.map(readIp)
  printResult(flags, ips, () => tableText(IP_HEADS, ips.map(ipRow), isTerminal()))
  if (ips.length === 0) printNote(flags, 'No IP yet: add one to a pool of pools.yaml, then: sternpost reload')
}

async function show(ip: string, flags: VerbFlags): Promise<void> {
  const server = serverAddress(flags)
  const found = readIp(await callServer(server, { method: 'GET', path: pathOf(ip) }))
  const shown: ShownIp = {
    ...found,
    days: await ifPermitted(() => daysOf(server, found.ip)),
    history: await ifPermitted(() => historyOf(server, found.ip)),
  }
  const screen = { isTerminal: isTerminal(), width: terminalWidth(), now: Date.now() }
  printResult(flags, shown, () => ipReport(shown, screen))
}

async function daysOf(server: ServerAddress, ip: string): Promise<SendDayJson[]> {
  const answer = await callServer(server, { method: 'GET', path: `/v1/admin/ips/${ip}/days` })
  return entriesOf(answer).map((day) => readAnswer<SendDayJson>(day, 'date', 'planned', 'sent'))
}

async function historyOf(server: ServerAddress, ip: string): Promise<IpNoteJson[]> {
  const path = withQuery(`/v1/admin/ips/${ip}/audit`, { limit: SHOWN_NOTES })
  const answer = await callServer(server, { method: 'GET', path })
  return entriesOf(answer).map((note) => readAnswer<IpNoteJson>(note, 'at', 'actor', 'action'))
}

function entriesOf(answer: unknown): unknown[] {
  return Array.isArray(answer) ? answer : []
}

interface MoveFlags extends VerbFlags {
  provider?: string
}

async function suspend(ip: string, flags: MoveFlags & { reason?: string }): Promise<void> {
  const { provider, reason } = flags
  const body = { reason, provider }
  const moved = await move(flags, { method: 'POST', path: `/v1/admin${ipPath(ip)}/suspend`, body })
  const what = provider === undefined ? moved.status : `${moved.status}, its mail to ${provider} is suspended`
  printResult(flags, moved, () => `${moved.ip} is ${what}\n`)
}

async function resume(ip: string, flags: MoveFlags): Promise<void> {
  const { provider } = flags
  const moved = await move(flags, { method: 'POST', path: `/v1/admin${ipPath(ip)}/resume`, body: { provider } })
  const what = provider === undefined ? moved.status : `${moved.status}, its mail to ${provider} is resumed`
  printResult(flags, moved, () => `${moved.ip} is ${what}\n`)
}

async function move(flags: VerbFlags, call: ApiCall): Promise<IpJson> {
  return readIp(await callServer(serverAddress(flags), call))
}

function readIp(answer: unknown): IpJson {
  return readAnswer<IpJson>(answer, 'ip', 'pool', 'status', 'ptr', 'blocklists', 'warmup')
}

function pathOf(ip: string): string {
  return `/v1${ipPath(ip)}`
}

function ipPath(ip: string): string {
  return `/ips/${encodeURIComponent(ip)}`
}
