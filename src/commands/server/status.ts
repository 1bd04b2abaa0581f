/**
 * `sternpost status`: how the server is, on one screen (commands/README.md "The command line").
 *
 * What a key may not ask about is left out. Ends with 1 when the server is not well.
 */
import type { WebhookEndpointJson } from '../../api/webhook.ts'
import type { IpJson } from '../../api/ip.ts'
import type { HealthJson } from '../../api/health.ts'
import type { RunningServerJson, StorageJson } from '../../api/server.ts'
import type { Command } from 'commander'
import { MINUTE, SECOND } from '../../base/clock.ts'
import { EXIT } from '../../base/errors.ts'
import { durationText } from '../../config/settings/field-types.ts'
import type { DomainView } from '../../senders/domain-view.ts'
import { callServer, ifPermitted, listFromServer } from '../shared/api-client.ts'
import { printResult, sheetText } from '../shared/print.ts'
import { serverAddress, shownAddress, type ServerAddress } from '../shared/server-address.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'
import { byteText } from '../shared/byte-text.ts'

export interface StatusView {
  server: string
  /** When it was asked, Unix milliseconds. */
  at: number
  running: RunningServerJson | null
  health: HealthJson
  /** How many are in each state; null: the key may not know. */
  domains: Record<string, number> | null
  webhooks: { enabled: number; disabled: number; pending: number; dead_letters: number } | null
  ips: { ip: string; pool: string; status: string; used_today: number | null; daily_limit: number | null }[] | null
  storage: StorageJson | null
  /** Those that are not well. */
  checks: { check: string; subject: string | null; result: string; seen: string }[] | null
}

export function addStatusCommand(program: Command): void {
  addVerb(program, { words: 'status', description: 'show how the server is', example: 'sternpost status' }).action(
    status,
  )
}

export async function status(flags: VerbFlags): Promise<void> {
  const view = await readStatus(serverAddress(flags))
  printResult(flags, view, () => statusText(view))
  if (view.health.status !== 'ok') process.exitCode = EXIT.failed
}

export async function readStatus(server: ServerAddress): Promise<StatusView> {
  const health = readAnswer<HealthJson>(
    await callServer(server, { method: 'GET', path: '/v1/health' }),
    'status',
    'queue_depth',
    'oldest_due_seconds',
  )
  return {
    server: shownAddress(server),
    at: Date.now(),
    running: await ifPermitted(() => runningServer(server)),
    health,
    domains: await ifPermitted(() => domainsOf(server)),
    webhooks: await ifPermitted(() => webhooksOf(server)),
    ips: await ifPermitted(() => ipsOf(server)),
    storage: await ifPermitted(() => storageOf(server)),
    checks: await ifPermitted(() => failingChecks(server)),
  }
}

export function statusText(view: StatusView): string {
  const { server, at, running, health, domains, webhooks, ips, storage, checks } = view
  const { queue_depth: depth, oldest_due_seconds: oldest } = health
  const wait = oldest === 0 ? '' : `, the oldest due one for ${oldest} s`
  return sheetText(`${server}  ${health.status}`, [
    ['version', running === null ? null : runningText(running, at)],
    ['queue', `${depth} waiting${wait}`],
    ['database', health.db],
    ['SMTP out', health.smtp_out],
    ['domains', domains === null ? null : domainsText(domains)],
    ['webhooks', webhooks === null ? null : webhooksText(webhooks)],
    ['storage', storage === null ? null : storageText(storage)],
    ['full of', storage === null ? null : kindsText(storage)],
    ...(ips ?? []).map((ip): [string, string] => [ip.ip, ipText(ip)]),
    ...(checks ?? []).map((check): [string, string] => [check.result, checkText(check)]),
  ])
}

function domainsText(domains: Record<string, number>): string {
  const counts = Object.entries(domains).map(([state, count]) => `${count} ${state}`)
  return counts.length === 0 ? 'none yet. Add one: sternpost domain add acme.com' : counts.join(', ')
}

function webhooksText(webhooks: NonNullable<StatusView['webhooks']>): string {
  const { enabled, disabled, pending, dead_letters: deadLetters } = webhooks
  return `${enabled} enabled, ${disabled} disabled; ${pending} deliveries waiting, ${deadLetters} dead letters`
}

async function domainsOf(server: ServerAddress): Promise<Record<string, number>> {
  const counts: Record<string, number> = {}
  for (const entry of await listFromServer(server, '/v1/domains', { status: 'all' })) {
    const { status: state } = readAnswer<DomainView>(entry, 'domain', 'status')
    counts[state] = (counts[state] ?? 0) + 1
  }
  return counts
}

async function webhooksOf(server: ServerAddress): Promise<StatusView['webhooks']> {
  const totals = { enabled: 0, disabled: 0, pending: 0, dead_letters: 0 }
  for (const entry of await listFromServer(server, '/v1/webhooks')) {
    const endpoint = readAnswer<WebhookEndpointJson>(entry, 'id', 'status', 'pending', 'dead_letters')
    totals[endpoint.status] += 1
    totals.pending += endpoint.pending
    totals.dead_letters += endpoint.dead_letters
  }
  return totals
}

async function runningServer(server: ServerAddress): Promise<RunningServerJson> {
  const answer = await callServer(server, { method: 'GET', path: '/v1/admin/server' })
  return readAnswer<RunningServerJson>(answer, 'version', 'node', 'started_at', 'revision')
}

async function ipsOf(server: ServerAddress): Promise<StatusView['ips']> {
  return (await listFromServer(server, '/v1/ips')).map((entry) => {
    const { ip, pool, status: state, warmup } = readAnswer<IpJson>(entry, 'ip', 'pool', 'status', 'warmup')
    return { ip, pool, status: state, used_today: warmup?.sent_today ?? null, daily_limit: warmup?.daily_limit ?? null }
  })
}

async function failingChecks(server: ServerAddress): Promise<StatusView['checks']> {
  const answer = await callServer(server, { method: 'GET', path: '/v1/admin/checks' })
  const { checks } = readAnswer<{ checks: NonNullable<StatusView['checks']> }>(answer, 'checks')
  return checks
    .filter(({ result }) => NOT_WELL.includes(result))
    .map(({ check, subject, result, seen }) => ({ check, subject, result, seen }))
}

const NOT_WELL = ['warn', 'fail']

function runningText({ version, node, started_at: startedAt, revision }: RunningServerJson, at: number): string {
  const up = durationText(Math.max(1, Math.round((at / SECOND - startedAt) / MINUTE_SECONDS)) * MINUTE)
  return `${version} on Node.js ${node}, up for ${up}, configuration revision ${revision}`
}

const MINUTE_SECONDS = MINUTE / SECOND

function ipText({
  pool,
  status: state,
  used_today: used,
  daily_limit: limit,
}: NonNullable<StatusView['ips']>[number]): string {
  const today = limit === null ? '' : `, ${used ?? 0} of ${limit} today`
  return `${state} in ${pool}${today}`
}

function checkText({ check, subject, seen }: NonNullable<StatusView['checks']>[number]): string {
  return `${check}${subject === null ? '' : ` ${subject}`}: ${seen} (sternpost doctor ${check})`
}

async function storageOf(server: ServerAddress): Promise<StorageJson> {
  const answer = await callServer(server, { method: 'GET', path: '/v1/admin/storage' })
  return readAnswer<StorageJson>(answer, 'used_bytes', 'free_bytes', 'kinds')
}

/** `1.2 GiB in use, 30.0 GiB free; grows by 80.0 MiB a day, 370 days left`. */
function storageText(storage: StorageJson): string {
  const { used_bytes: used, free_bytes: free, growth_per_day: growth, days_left: days, budget_bytes: budget } = storage
  const limit = budget === null ? '' : ` of a budget of ${byteText(budget)}`
  const grows = growth === null || growth <= 0 ? '' : `; grows by ${byteText(growth)} a day`
  return `${byteText(used)} in use${limit}, ${byteText(free)} free${grows}${days === null ? '' : `, ${days} days left`}`
}

/** Largest first, without those that are nothing beside the others. */
function kindsText({ kinds, used_bytes: used }: StorageJson): string | null {
  const shown = kinds.filter(({ bytes }) => bytes * 100 > used).toSorted((left, right) => right.bytes - left.bytes)
  return shown.length === 0
    ? null
    : shown.map(({ kind, bytes }) => `${kind.replaceAll('_', ' ')} ${byteText(bytes)}`).join(', ')
}
