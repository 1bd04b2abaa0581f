/**
 * `posthorn status`: how the server is, on one screen (operations.md 6).
 *
 * What a key may not ask about is left out. Ends with 1 when the server is not well.
 */
import type { Command } from 'commander'
import { EXIT } from '../base/errors.ts'
import type { DomainView } from '../senders/domain-view.ts'
import type { WebhookEndpointView } from '../webhooks/endpoint-view.ts'
import { callServer, ifPermitted, listFromServer } from './api-client.ts'
import { printResult, sheetText } from './print.ts'
import { serverAddress, shownAddress } from './server-address.ts'
import type { ServerAddress } from './server-address.ts'
import { addVerb, readAnswer } from './verb.ts'
import type { VerbFlags } from './verb.ts'

interface Health {
  status: 'ok' | 'degraded'
  queue_depth: number
  oldest_due_seconds: number
  db: string
  smtp_out: string
}

export interface StatusView {
  server: string
  health: Health
  /** How many are in each state; null: the key may not know. */
  domains: Record<string, number> | null
  webhooks: { enabled: number; disabled: number; pending: number; dead_letters: number } | null
}

export function addStatusCommand(program: Command): void {
  addVerb(program, { words: 'status', description: 'show how the server is', example: 'posthorn status' })
    .action(status)
}

export async function status(flags: VerbFlags): Promise<void> {
  const server = serverAddress(flags)
  const health = readAnswer<Health>(
    await callServer(server, { method: 'GET', path: '/v1/health' }), 'status', 'queue_depth', 'oldest_due_seconds',
  )
  const view: StatusView = {
    server: shownAddress(server),
    health,
    domains: await ifPermitted(() => domainsOf(server)),
    webhooks: await ifPermitted(() => webhooksOf(server)),
  }
  printResult(flags, view, () => statusText(view))
  if (health.status !== 'ok') process.exitCode = EXIT.failed
}

export function statusText({ server, health, domains, webhooks }: StatusView): string {
  const { queue_depth: depth, oldest_due_seconds: oldest } = health
  const wait = oldest === 0 ? '' : `, the oldest due one for ${oldest} s`
  return sheetText(`${server}  ${health.status}`, [
    ['queue', `${depth} waiting${wait}`],
    ['database', health.db],
    ['SMTP out', health.smtp_out],
    ['domains', domains === null ? null : domainsText(domains)],
    ['webhooks', webhooks === null ? null : webhooksText(webhooks)],
  ])
}

function domainsText(domains: Record<string, number>): string {
  const counts = Object.entries(domains).map(([state, count]) => `${count} ${state}`)
  return counts.length === 0 ? 'none yet. Add one: posthorn domain add acme.com' : counts.join(', ')
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
    const endpoint = readAnswer<WebhookEndpointView>(entry, 'id', 'status', 'pending', 'dead_letters')
    totals[endpoint.status] += 1
    totals.pending += endpoint.pending
    totals.dead_letters += endpoint.dead_letters
  }
  return totals
}
