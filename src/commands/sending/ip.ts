/**
 * `sternpost ip`: dedicated IPs, their daily volume, their warmup, and the forecast of a campaign (http/README.md
 * "IPs", "Warmup" and "Forecast", commands/README.md "The command line").
 */
import type { Command } from 'commander'
import { forecastSchema, ipNoteSchema, ipSchema, ipWarmupSchema, sendDaySchema } from '../../api/ip.ts'
import { ask, askAll, askRows, ifPermitted, withQuery, type ApiPath } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { countFlag, timeFlag } from '../shared/flag-values.ts'
import { printList, printResult } from '../shared/print.ts'
import { isTerminal, terminalWidth } from '../shared/text.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, type Given, type VerbFlags } from '../shared/verb.ts'
import { forecastReport, IP_COLUMNS, ipReport, warmupReport, type ShownIp } from './ip-report.ts'

type StartFlags = VerbFlags & Given<'curve' | 'stage' | 'target'> & { force?: boolean }

type ForecastFlags = VerbFlags & Given<'isp' | 'start'> & { recipients: string }

const IP = '203.0.113.10'
const BLOCK = 'mail to this provider alone: the name of its block, see sternpost provider list'
const REASON = ['--reason <text>', 'for those who look at it later, at most 200 characters'] as const
/** Of the audit. */
const SHOWN_NOTES = '10'

export function addIpCommands(program: Command): void {
  const ip = program.command('ip').description('dedicated IPs and their warmup')
  addVerb(ip, 'list', 'list the IPs of all pools').action(list)
  const shown = 'show an IP with its warmup, and a chart of what it may send and sent by UTC day'
  addVerb(ip, 'show <ip>', shown, IP).action(show)
  const suspended = 'let nothing leave from an IP, or from it to one provider, until it is resumed'
  const suspends = `${IP} --reason 'on a blocklist'\n${IP} --provider outlook --reason 'delisting asked for'`
  addVerb(ip, 'suspend <ip...>', suspended, suspends)
    .option('--provider <id>', BLOCK)
    .option(...REASON)
    .action((addresses: string[], flags: HaltFlags) => halt(addresses, 'suspend', flags))
  const resumed = 'end the suspension of an IP, and lift what holds its paths back'
  addVerb(ip, 'resume <ip...>', resumed, `${IP}\n${IP} --provider outlook`)
    .option('--provider <id>', BLOCK)
    .action((addresses: string[], flags: HaltFlags) => halt(addresses, 'resume', flags))
  addWarmupVerbs(ip.command('warmup').description('the warmup of an IP'))
}

function addWarmupVerbs(warmup: Command): void {
  const startVerb = addVerb(warmup, 'start <ip>', 'start the warmup of a cold IP', `${IP} --curve conservative`)
  withStartFlags(startVerb).action((ip: string, flags: StartFlags) => start(ip, flags, false))
  const paused = 'stop first attempts from an IP; retries of mail that was tried from it go on'
  addVerb(warmup, 'pause <ip>', paused, `${IP} --reason 'complaints'`)
    .option(...REASON)
    .action((ip: string, flags: HaltFlags) => move(ip, '/pause', { reason: flags.reason }, flags))
  const resume = addVerb(warmup, 'resume <ip>', 'go on with a paused warmup', IP)
  resume.action((ip: string, flags: VerbFlags) => move(ip, '/resume', {}, flags))
  const complete = addVerb(warmup, 'complete <ip>', 'make an IP warmed now: nothing limits it any more', IP)
  complete.action((ip: string, flags: VerbFlags) => move(ip, '/complete', {}, flags))
  const restarted = 'begin a warmup again, whatever the IP is now'
  const restartVerb = addVerb(warmup, 'restart <ip>', restarted, `${IP} --stage 5`)
  withStartFlags(restartVerb).action((ip: string, flags: StartFlags) => start(ip, flags, true))
  const foretold = 'say when a campaign would have left an IP, if every day of the warmup is a good one'
  addVerb(warmup, 'forecast <ip>', foretold, `${IP} --recipients 5000`)
    .requiredOption('--recipients <count>', 'messages of the campaign')
    .option('--isp <name>', 'all to this mailbox provider (default: as the last 30 days were mixed)')
    .option('--start <time>', 'when it begins, e.g. 2026-11-21T12:00 (default: now)')
    .action(forecast)
}

function withStartFlags(verb: Command): Command {
  return verb
    .option('--curve <name>', 'curve of warmup.yaml (default: that of pools.yaml, else of warmup.yaml)')
    .option('--stage <number>', 'stage to begin at (default: 1)')
    .option('--target <count>', 'daily volume at which the warmup is over (default: that of the curve)')
    .option('--force', 'also when its reverse name is wrong or this machine cannot bind it')
}

async function list(flags: VerbFlags): Promise<void> {
  const ips = await askAll(flags, ipSchema, '/v1/ips')
  printList(
    flags,
    IP_COLUMNS,
    ips,
    `No IP yet: add one to a pool of pools.yaml, then: ${commandText(flags, { verb: 'reload' })}`,
  )
}

async function show(address: string, flags: VerbFlags): Promise<void> {
  const server = serverAddress(flags)
  const found = await ask(server, ipSchema, `GET /v1/ips/${encodeURIComponent(address)}`)
  const path = `/v1/admin/ips/${found.ip}` as const
  const audit = withQuery(`${path}/audit`, { limit: SHOWN_NOTES })
  const shown: ShownIp = {
    ...found,
    days: await ifPermitted(() => askRows(server, sendDaySchema, `${path}/days`)),
    history: await ifPermitted(() => askRows(server, ipNoteSchema, audit)),
  }
  const screen = { isTerminal: isTerminal(), width: terminalWidth(), now: Date.now() }
  printResult(flags, shown, () => ipReport(shown, screen, flags))
}

type HaltFlags = VerbFlags & Given<'provider' | 'reason'>

/** One after the other: what is printed is done. */
async function halt(addresses: string[], action: 'suspend' | 'resume', flags: HaltFlags): Promise<void> {
  const { provider, reason } = flags
  const done = action === 'suspend' ? 'suspended' : 'resumed'
  const ofProvider = provider === undefined ? '' : `, its mail to ${provider} is ${done}`
  for (const address of addresses) {
    const path = `/v1/admin/ips/${encodeURIComponent(address)}/${action}` as const
    const moved = await ask(flags, ipSchema, `POST ${path}`, { reason, provider })
    printResult(flags, moved, () => `${moved.ip} is ${moved.status}${ofProvider}\n`)
  }
}

async function start(ip: string, flags: StartFlags, restart: boolean): Promise<void> {
  const { curve, stage, target, force } = flags
  const body = {
    curve,
    restart,
    stage: stage === undefined ? undefined : countFlag('--stage', stage),
    target_daily_volume: target === undefined ? undefined : countFlag('--target', target),
    force: force === true,
  }
  await move(ip, '', body, flags)
}

const pathOf = (ip: string): ApiPath => `/v1/ips/${encodeURIComponent(ip)}/warmup`

async function move(ip: string, action: '' | `/${string}`, body: object, flags: VerbFlags): Promise<void> {
  const moved = await ask(flags, ipWarmupSchema, `POST ${pathOf(ip)}${action}`, body)
  printResult(flags, moved, () => warmupReport(moved))
}

async function forecast(ip: string, flags: ForecastFlags): Promise<void> {
  const query = {
    recipients: String(countFlag('--recipients', flags.recipients)),
    isp: flags.isp,
    start_at: flags.start === undefined ? undefined : timeFlag('--start', flags.start),
  }
  const view = await ask(flags, forecastSchema, `GET ${withQuery(`${pathOf(ip)}/forecast`, query)}`)
  printResult(flags, view, () => forecastReport(view, isTerminal()))
}
