/**
 * `sternpost ip warmup`: start, pause, resume, complete and restart the warmup of an IP, and the forecast of a campaign
 * (http/README.md "Warmup" and "Forecast").
 */
import type { IpWarmupJson, WarmupForecastJson } from '../../api/ip.ts'
import type { Command } from 'commander'
import { callServer, withQuery } from '../shared/api-client.ts'
import { countFlag, timeFlag } from '../shared/flag-values.ts'
import { forecastReport, warmupReport } from './ip-report.ts'
import { isTerminal, printResult } from '../shared/print.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'

interface StartFlags extends VerbFlags {
  curve?: string
  stage?: string
  target?: string
  force?: boolean
}

interface ForecastFlags extends VerbFlags {
  recipients: string
  isp?: string
  start?: string
}

const EXAMPLE_IP = '203.0.113.10'

export function addWarmupVerbs(warmup: Command): void {
  withStartFlags(
    addVerb(warmup, {
      words: 'start <ip>',
      description: 'start the warmup of a cold IP',
      example: `sternpost ip warmup start ${EXAMPLE_IP} --curve conservative`,
    }),
  ).action((ip: string, flags: StartFlags) => start(ip, flags, false))
  addVerb(warmup, {
    words: 'pause <ip>',
    description: 'stop first attempts from an IP; retries of mail that was tried from it go on',
    example: `sternpost ip warmup pause ${EXAMPLE_IP} --reason 'complaints'`,
  })
    .option('--reason <text>', 'for those who look at it later, at most 200 characters')
    .action((ip: string, flags: VerbFlags & { reason?: string }) => move(ip, 'pause', { reason: flags.reason }, flags))
  addVerb(warmup, {
    words: 'resume <ip>',
    description: 'go on with a paused warmup',
    example: `sternpost ip warmup resume ${EXAMPLE_IP}`,
  }).action((ip: string, flags: VerbFlags) => move(ip, 'resume', {}, flags))
  addVerb(warmup, {
    words: 'complete <ip>',
    description: 'make an IP warmed now: nothing limits it any more',
    example: `sternpost ip warmup complete ${EXAMPLE_IP}`,
  }).action((ip: string, flags: VerbFlags) => move(ip, 'complete', {}, flags))
  withStartFlags(
    addVerb(warmup, {
      words: 'restart <ip>',
      description: 'begin a warmup again, whatever the IP is now',
      example: `sternpost ip warmup restart ${EXAMPLE_IP} --stage 5`,
    }),
  ).action((ip: string, flags: StartFlags) => start(ip, flags, true))
}

export function addForecastVerb(warmup: Command): void {
  addVerb(warmup, {
    words: 'forecast <ip>',
    description: 'say when a campaign would have left an IP, if every day of the warmup is a good one',
    example: `sternpost ip warmup forecast ${EXAMPLE_IP} --recipients 5000`,
  })
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
    .option('--force', 'also when its reverse name is wrong or this machine can not bind it')
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
  await move(ip, null, body, flags)
}

async function move(ip: string, action: string | null, body: object, flags: VerbFlags): Promise<void> {
  const path = `${pathOf(ip)}${action === null ? '' : `/${action}`}`
  const answer = await callServer(serverAddress(flags), { method: 'POST', path, body })
  const moved = readAnswer<IpWarmupJson>(answer, 'ip', 'status', 'warmup')
  printResult(flags, moved, () => warmupReport(moved.ip, moved.status, moved.warmup))
}

async function forecast(ip: string, flags: ForecastFlags): Promise<void> {
  const query = {
    recipients: String(countFlag('--recipients', flags.recipients)),
    isp: flags.isp,
    start_at: flags.start === undefined ? undefined : timeFlag('--start', flags.start),
  }
  const path = withQuery(`${pathOf(ip)}/forecast`, query)
  const answer = await callServer(serverAddress(flags), { method: 'GET', path })
  const view = readAnswer<WarmupForecastJson>(answer, 'ip', 'recipients', 'finish_at', 'days')
  printResult(flags, view, () => forecastReport(view, isTerminal()))
}

function pathOf(ip: string): string {
  return `/v1/ips/${encodeURIComponent(ip)}/warmup`
}
