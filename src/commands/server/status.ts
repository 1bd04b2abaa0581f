/**
 * `sternpost status`: how the server is, on one screen (commands/README.md "The command line"). What a key may not ask
 * about is left out. Ends with 1 when the server is not well.
 *
 * `sternpost top`: the status again and again, with what happened between two looks. On a terminal the screen is drawn
 * anew; else each look is a line of JSON, or a block of text. Ends when interrupted, or when the server is gone (69).
 */
import type { Command } from 'commander'
import { domainSchema } from '../../api/domain.ts'
import { checksSchema, healthSchema } from '../../api/health.ts'
import { ipSchema } from '../../api/ip.ts'
import { runningServerSchema, storageSchema, type RunningServerJson, type StorageJson } from '../../api/server.ts'
import { webhookEndpointSchema } from '../../api/webhook.ts'
import { MINUTE, SECOND, systemClock, toUnixSeconds } from '../../base/clock.ts'
import { EXIT } from '../../base/errors.ts'
import { durationText } from '../../config/settings/field-types.ts'
import { ask, askAll, ifPermitted } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { durationFlag } from '../shared/flag-values.ts'
import { printPiece, printResult } from '../shared/print.ts'
import { byteText, jsonText, obeysEscapes, sheetText } from '../shared/text.ts'
import { serverAddress, shownAddress, type ServerAddress } from '../shared/server-address.ts'
import { pause, untilInterrupted, addVerb, type VerbFlags } from '../shared/verb.ts'

type StatusView = Awaited<ReturnType<typeof readStatus>>

export function addStatusCommands(program: Command): void {
  addVerb(program, 'status', 'show how the server is').action(status)
  addVerb(program, 'top', 'watch how the server is, until interrupted', '--interval 5s')
    .option('--interval <duration>', 'time between two looks', '2s')
    .action(top)
}

export async function status(flags: VerbFlags): Promise<void> {
  const view = await readStatus(serverAddress(flags))
  printResult(flags, view, () => statusText(view, flags))
  if (view.health.status !== 'ok') process.exitCode = EXIT.failed
}

async function readStatus(server: ServerAddress) {
  const health = await ask(server, healthSchema, 'GET /v1/health')
  return {
    server: shownAddress(server),
    /** When it was asked, Unix seconds. */
    at: toUnixSeconds(Date.now()),
    running: await ifPermitted(() => ask(server, runningServerSchema, 'GET /v1/admin/server')),
    health,
    // How many are in each state; null: the key may not know.
    domains: await ifPermitted(() => domainsOf(server)),
    webhooks: await ifPermitted(() => webhooksOf(server)),
    ips: await ifPermitted(() => ipsOf(server)),
    storage: await ifPermitted(() => ask(server, storageSchema, 'GET /v1/admin/storage')),
    // Those that are not well.
    checks: await ifPermitted(() => failingChecks(server)),
  }
}

function statusText(view: StatusView, flags: VerbFlags): string {
  const { server, at, running, health, domains, webhooks, ips, storage, checks } = view
  const { queue_depth: depth, oldest_due_seconds: oldest } = health
  const wait = oldest === 0 ? '' : `, the oldest due one for ${oldest} s`
  return sheetText(`${server}  ${health.status}`, [
    ['version', running === null ? null : runningText(running, at)],
    ['queue', `${depth} waiting${wait}`],
    ['database', health.db],
    ['mail in', health.mail_in],
    ['SMTP out', health.smtp_out],
    ['domains', domains === null ? null : domainsText(domains, flags)],
    ['webhooks', webhooks === null ? null : webhooksText(webhooks)],
    ['storage', storage === null ? null : storageText(storage)],
    ['full of', storage === null ? null : kindsText(storage)],
    ...(ips ?? []).map((ip): [string, string] => [ip.ip, ipText(ip)]),
    ...(checks ?? []).map((check): [string, string] => [check.result, checkText(check, flags)]),
  ])
}

function domainsText(domains: Record<string, number>, flags: VerbFlags): string {
  const counts = Object.entries(domains).map(([state, count]) => `${count} ${state}`)
  if (counts.length > 0) return counts.join(', ')
  return `none yet. Add one: ${commandText(flags, { verb: 'domain add', arguments: ['acme.com'] })}`
}

function webhooksText(webhooks: NonNullable<StatusView['webhooks']>): string {
  const { enabled, disabled, pending, dead_letters: deadLetters } = webhooks
  return `${enabled} enabled, ${disabled} disabled; ${pending} deliveries waiting, ${deadLetters} dead letters`
}

async function domainsOf(server: ServerAddress): Promise<Record<string, number>> {
  const domains = await askAll(server, domainSchema, '/v1/domains', { status: 'all' })
  const byStatus = Map.groupBy(domains, ({ status: state }) => state)
  return Object.fromEntries([...byStatus].map(([state, ofIt]) => [state, ofIt.length]))
}

async function webhooksOf(server: ServerAddress) {
  const totals = { enabled: 0, disabled: 0, pending: 0, dead_letters: 0 }
  for (const endpoint of await askAll(server, webhookEndpointSchema, '/v1/webhooks')) {
    totals[endpoint.status] += 1
    totals.pending += endpoint.pending
    totals.dead_letters += endpoint.dead_letters
  }
  return totals
}

async function ipsOf(server: ServerAddress) {
  return (await askAll(server, ipSchema, '/v1/ips')).map(({ ip, pool, status: state, warmup }) => ({
    ip,
    pool,
    status: state,
    used_today: warmup?.sent_today ?? null,
    daily_limit: warmup?.daily_limit ?? null,
  }))
}

async function failingChecks(server: ServerAddress) {
  const { checks } = await ask(server, checksSchema, 'GET /v1/admin/checks')
  return checks
    .filter(({ result }) => result === 'warn' || result === 'fail')
    .map(({ check, subject, result, seen }) => ({ check, subject, result, seen }))
}

function runningText({ version, node, started_at: startedAt, revision }: RunningServerJson, at: number): string {
  const seconds = Math.max(1, at - startedAt)
  const up = durationText(seconds < MINUTE_SECONDS ? seconds * SECOND : Math.round(seconds / MINUTE_SECONDS) * MINUTE)
  return `${version} on Node.js ${node}, up for ${up}, configuration revision ${revision}`
}

const MINUTE_SECONDS = MINUTE / SECOND

function ipText(ip: NonNullable<StatusView['ips']>[number]): string {
  const today = ip.daily_limit === null ? '' : `, ${ip.used_today ?? 0} of ${ip.daily_limit} today`
  return `${ip.status} in ${ip.pool}${today}`
}

function checkText({ check, subject, seen }: NonNullable<StatusView['checks']>[number], flags: VerbFlags): string {
  const more = commandText(flags, { verb: 'doctor', arguments: [check] })
  return `${check}${subject === null ? '' : ` ${subject}`}: ${seen} (${more})`
}

/** `1.2 GiB in use, 30.0 GiB free; grows by 80.0 MiB a day, 370 days left`. */
function storageText(storage: StorageJson): string {
  const { used_bytes: used, free_bytes: free, growth_per_day: growth, days_left: days, budget_bytes: budget } = storage
  const limit = budget === null ? '' : ` of a budget of ${byteText(budget)}`
  const grows = growth === null || growth <= 0 ? '' : `; grows by ${byteText(growth)} a day`
  return `${byteText(used)} in use${limit}, ${byteText(free)} free${grows}${days === null ? '' : `, ${days} days left`}`
}

/** Largest first, without those that are nothing beside the others. */
function kindsText({ kinds, used_bytes: used }: StorageJson): string {
  const shown = kinds.filter(({ bytes }) => bytes * 100 > used).toSorted((left, right) => right.bytes - left.bytes)
  return shown.map(({ kind, bytes }) => `${kind.replaceAll('_', ' ')} ${byteText(bytes)}`).join(', ')
}

/** From the top left corner, all behind it erased. */
const REDRAW = '\u001b[H\u001b[J'

async function top(flags: VerbFlags & { interval: string }): Promise<void> {
  const interval = durationFlag('--interval', flags.interval)
  const server = serverAddress(flags)
  const signal = untilInterrupted()
  let before: Look | null = null
  while (!signal.aborted) {
    const view = await readStatus(server)
    const look = { at: Date.now(), depth: view.health.queue_depth }
    const text = flags.json === true ? jsonText(view) : `${statusText(view, flags)}${changeText(look, before)}\n`
    await printPiece(obeysEscapes() && flags.json !== true ? `${REDRAW}${text}` : text)
    before = look
    await pause(systemClock, interval, signal)
  }
}

interface Look {
  /** Unix milliseconds. */
  at: number
  /** Messages that wait. */
  depth: number
}

/** How the queue moved, per second. */
function changeText(look: Look, before: Look | null): string {
  if (before === null) return ''
  const seconds = (look.at - before.at) / SECOND
  const change = (look.depth - before.depth) / seconds
  if (seconds <= 0 || change === 0) return ''
  return `  queue ${change > 0 ? 'grows' : 'shrinks'} by ${Math.abs(change).toFixed(1)} messages a second\n`
}
