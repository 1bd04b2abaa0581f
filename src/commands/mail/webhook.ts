/**
 * `sternpost webhook`: endpoints that receive events (http/README.md "Webhooks", commands/README.md "The command
 * line"). What is sent to them: `webhook-deliveries.ts`.
 *
 * `remove` shows how many deliveries wait and does nothing without --yes. `test` ends with 1 when the endpoint did not
 * answer 200.
 */
import type { WebhookEndpointJson } from '../../api/webhook.ts'
import type { Command } from 'commander'
import { SECOND } from '../../base/clock.ts'
import { EXIT } from '../../base/errors.ts'
import { callServer, listFromServer } from '../shared/api-client.ts'
import { durationFlag } from '../shared/flag-values.ts'
import { isTerminal, localTime, printable, printNote, printResult, tableText } from '../shared/print.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { collect } from '../shared/shared-options.ts'
import { addVerb, isConfirmed, readAnswer, type ConsentFlags, type VerbFlags } from '../shared/verb.ts'
import { addDeliveryCommands } from './webhook-deliveries.ts'
import { ENDPOINT_HEADS, endpointReport, endpointRow } from './webhook-report.ts'

interface AddFlags extends VerbFlags {
  event?: string[]
  secret?: string
  include?: string[]
  description?: string
}

const EXAMPLE_ID = 'wh_01kapg6t3vq8x2m5r7w9y4c6dm'

export function addWebhookCommands(program: Command): void {
  const webhook = program.command('webhook').description('endpoints that receive events')
  addVerb(webhook, {
    words: 'add <url>',
    description: 'register an endpoint; a generated secret is shown once',
    example: 'sternpost webhook add https://app.acme.com/hooks --event email.bounced --event email.complained',
  })
    .option('--event <kind>', 'kind of event, or *; repeat for several (default: the five standard kinds)', collect)
    .option('--secret <secret>', 'secret to sign with (default: one is generated)')
    .option('--include <field>', 'field to add to the data, e.g. tags; repeat for several', collect)
    .option('--description <text>', 'what it is for, at most 200 characters')
    .action(add)
  addVerb(webhook, { words: 'list', description: 'list the endpoints', example: 'sternpost webhook list' }).action(list)
  addVerb(webhook, {
    words: 'show <id>',
    description: 'show an endpoint',
    example: `sternpost webhook show ${EXAMPLE_ID}`,
  }).action(show)
  addVerb(webhook, {
    words: 'enable <id>',
    description: 'turn on an endpoint that was disabled, also by its failures; its counters start anew',
    example: `sternpost webhook enable ${EXAMPLE_ID}`,
  }).action(enable)
  addVerb(webhook, {
    words: 'remove <id>',
    description: 'remove an endpoint; what waits for it is dropped',
    example: `sternpost webhook remove ${EXAMPLE_ID} --yes`,
  })
    .option('--yes', 'do it')
    .action(remove)
  addSigning(webhook)
  addDeliveryCommands(webhook)
}

function addSigning(webhook: Command): void {
  addVerb(webhook, {
    words: 'test <id>',
    description: 'send one sample event now, signed with the real secret',
    example: `sternpost webhook test ${EXAMPLE_ID} --event email.bounced`,
  })
    .option('--event <kind>', 'kind of event')
    .action(test)
  addVerb(webhook, {
    words: 'rotate-secret <id>',
    description: 'begin to sign with a new secret; both are sent for a while',
    example: `sternpost webhook rotate-secret ${EXAMPLE_ID} --grace 24h`,
  })
    .option('--secret <secret>', 'the new secret (default: one is generated and shown once)')
    .option('--grace <duration>', 'how long the old one goes on, at most 7d; 0s: not at all (default: 24h)')
    .action(rotateSecret)
}

async function add(url: string, flags: AddFlags): Promise<void> {
  const { event: events, secret, include, description } = flags
  const body = { url, events, secret, include, description }
  const answer = await callServer(serverAddress(flags), { method: 'POST', path: '/v1/webhooks', body })
  const added = readAnswer<WebhookEndpointJson & { secret?: string }>(answer, 'id', 'events', 'status')
  printResult(flags, added, () => `${added.id}\n${added.secret === undefined ? '' : `${added.secret}\n`}`)
  if (added.secret !== undefined) printNote(flags, 'The second line is its secret: this is the only time it is shown.')
  printNote(flags, `Try it: sternpost webhook test ${added.id}`)
}

async function list(flags: VerbFlags): Promise<void> {
  const endpoints = await endpointsOf(serverAddress(flags))
  printResult(flags, endpoints, () => tableText(ENDPOINT_HEADS, endpoints.map(endpointRow), isTerminal()))
  if (endpoints.length > 0) return
  printNote(flags, 'No endpoint yet. Add one: sternpost webhook add https://app.acme.com/hooks')
}

async function show(id: string, flags: VerbFlags): Promise<void> {
  const endpoint = await find(serverAddress(flags), id)
  printResult(flags, endpoint, () => endpointReport(endpoint))
}

async function enable(id: string, flags: VerbFlags): Promise<void> {
  const call = { method: 'PATCH' as const, path: pathOf(id), body: { status: 'enabled' } }
  const endpoint = readEndpoint(await callServer(serverAddress(flags), call))
  printResult(flags, endpoint, () => `${printable(endpoint.url)} is ${endpoint.status}\n`)
  const replay = `sternpost webhook replay --endpoint ${endpoint.id} --since 30d --status skipped`
  printNote(flags, `Events meanwhile were kept. To send them now: ${replay}`)
}

async function remove(id: string, flags: ConsentFlags): Promise<void> {
  const server = serverAddress(flags)
  const endpoint = await find(server, id)
  const would = {
    document: endpoint,
    text: printable(`${endpoint.url}: waiting deliveries, would be dropped: ${endpoint.pending}`),
    command: `sternpost webhook remove ${endpoint.id}`,
  }
  if (!isConfirmed(flags, would)) return
  const removed = await callServer(server, { method: 'DELETE', path: pathOf(id) })
  printResult(flags, removed, () => `${printable(endpoint.url)} is removed\n`)
}

interface TestResult {
  ok: boolean
  status: number | null
  duration_ms: number
  error: string | null
}

async function test(id: string, flags: VerbFlags & { event?: string }): Promise<void> {
  const body = { event: flags.event }
  const answer = await callServer(serverAddress(flags), { method: 'POST', path: `${pathOf(id)}/test`, body })
  const result = readAnswer<TestResult>(answer, 'ok', 'status', 'duration_ms', 'error')
  const { ok, status, duration_ms: duration, error } = result
  const outcome = ok ? 'answered 200' : (error ?? `answered ${status}`)
  printResult(flags, result, () => `${ok ? 'ok' : 'failed'}: ${printable(outcome)}, ${duration} ms\n`)
  if (!ok) process.exitCode = EXIT.failed
}

async function rotateSecret(id: string, flags: VerbFlags & { secret?: string; grace?: string }): Promise<void> {
  const { secret, grace } = flags
  const body = { secret, grace_seconds: grace === undefined ? undefined : graceSeconds(grace) }
  const answer = await callServer(serverAddress(flags), { method: 'POST', path: `${pathOf(id)}/rotate-secret`, body })
  const rotated = readAnswer<{ id: string; secret?: string; switch_at: number }>(answer, 'id', 'switch_at')
  printResult(flags, rotated, () => `${rotated.secret ?? rotated.id}\n`)
  if (rotated.secret !== undefined) printNote(flags, 'This is the only time the new secret is shown.')
  printNote(flags, `The old secret signs until ${localTime(rotated.switch_at)}, the new one afterwards.`)
}

/** Zero is no duration elsewhere. */
function graceSeconds(text: string): number {
  return text === '0' || text === '0s' ? 0 : Math.floor(durationFlag('--grace', text) / SECOND)
}

async function find(server: ServerAddress, id: string): Promise<WebhookEndpointJson> {
  return readEndpoint(await callServer(server, { method: 'GET', path: pathOf(id) }))
}

async function endpointsOf(server: ServerAddress): Promise<WebhookEndpointJson[]> {
  return (await listFromServer(server, '/v1/webhooks')).map(readEndpoint)
}

function readEndpoint(answer: unknown): WebhookEndpointJson {
  return readAnswer<WebhookEndpointJson>(answer, 'id', 'url', 'events', 'include', 'status')
}

function pathOf(id: string): string {
  return `/v1/webhooks/${encodeURIComponent(id)}`
}
