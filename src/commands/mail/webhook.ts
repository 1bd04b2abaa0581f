/**
 * `sternpost webhook`: endpoints that receive events (http/README.md "Webhooks", commands/README.md "The command
 * line"). What is sent to them: `webhook-deliveries.ts`.
 *
 * `remove` shows how many deliveries wait and does nothing without --yes. `test` ends with 1 when the endpoint did not
 * answer 200.
 */
import type { Command } from 'commander'
import * as wire from '../../api/webhook.ts'
import { SECOND } from '../../base/clock.ts'
import { EXIT } from '../../base/errors.ts'
import { ask, askAll, callServer } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { collect, durationFlag } from '../shared/flag-values.ts'
import { printList, printNote, printResult } from '../shared/print.ts'
import { localTime, printable, sheetText, type Columns } from '../shared/text.ts'
import { addVerb, isConfirmed, type ConsentFlags, type Given, type VerbFlags } from '../shared/verb.ts'
import { addDeliveryCommands, pathOf } from './webhook-deliveries.ts'

type AddFlags = VerbFlags &
  Given<'secret' | 'description'> & { event?: string[]; include?: string[]; domain?: string[]; test?: true }

const ID = 'wh_01kapg6t3vq8x2m5r7w9y4c6dm'

export function addWebhookCommands(program: Command): void {
  const webhook = program.command('webhook').description('endpoints that receive events')
  const example = 'https://app.acme.com/hooks --event email.bounced --event email.complained'
  addVerb(webhook, 'add <url>', 'register an endpoint; a generated secret is shown once', example)
    .option('--event <kind>', 'kind of event, or *; repeat for several (default: the five standard kinds)', collect)
    .option('--secret <secret>', 'secret to sign with (default: one is generated)')
    .option('--include <field>', 'field to add to the data, e.g. tags; repeat for several', collect)
    .option('--domain <domain>', 'only events of this sending domain; repeat for several (default: all)', collect)
    .option('--test', 'events of the mail of test keys, in place of live mail')
    .option('--description <text>', 'what it is for, at most 200 characters')
    .action(add)
  addVerb(webhook, 'list', 'list the endpoints').action(list)
  addVerb(webhook, 'show <id>', 'show an endpoint', ID).action(show)
  const enabled = 'turn on an endpoint that was disabled, also by its failures; its counters start anew'
  addVerb(webhook, 'enable <id>', enabled, ID).action(enable)
  addVerb(webhook, 'remove <id>', 'remove an endpoint; what waits for it is dropped', `${ID} --yes`)
    .option('--yes', 'do it')
    .action(remove)
  const tested = 'send one sample event now, signed with the real secret'
  addVerb(webhook, 'test <id>', tested, `${ID} --event email.bounced`)
    .option('--event <kind>', 'kind of event')
    .action(test)
  const rotated = 'begin to sign with a new secret; both are sent for a while'
  addVerb(webhook, 'rotate-secret <id>', rotated, `${ID} --grace 24h`)
    .option('--secret <secret>', 'the new secret (default: one is generated and shown once)')
    .option('--grace <duration>', 'how long the old one goes on, at most 7d; 0s: not at all (default: 24h)')
    .action(rotateSecret)
  addDeliveryCommands(webhook)
}

async function add(url: string, flags: AddFlags): Promise<void> {
  const { event: events, secret, include, description, domain: domains } = flags
  const mode = flags.test === true ? 'test' : undefined
  const body = { url, events, secret, include, description, domains, mode }
  const added = await ask(flags, wire.createdWebhookSchema, 'POST /v1/webhooks', body)
  printResult(flags, added, () => `${added.id}\n${added.secret === undefined ? '' : `${added.secret}\n`}`)
  if (added.secret !== undefined) printNote(flags, 'The second line is its secret: this is the only time it is shown.')
  printNote(flags, `Try it: ${commandText(flags, { verb: 'webhook test', arguments: [added.id] })}`)
}

const COLUMNS: Columns<wire.WebhookEndpointJson> = {
  ID: ({ id }) => id,
  STATUS: ({ status }) => status,
  PENDING: ({ pending }) => pending,
  'DEAD LETTERS': (endpoint) => endpoint.dead_letters,
  'LAST SUCCESS': (endpoint) => localTime(endpoint.last_success_at),
  'LAST FAILURE': (endpoint) => localTime(endpoint.last_failure_at),
  URL: ({ url }) => url,
}

async function list(flags: VerbFlags): Promise<void> {
  const endpoints = await askAll(flags, wire.webhookEndpointSchema, '/v1/webhooks')
  const add = commandText(flags, { verb: 'webhook add', arguments: ['https://app.acme.com/hooks'] })
  printList(flags, COLUMNS, endpoints, `No endpoint yet. Add one: ${add}`)
}

async function show(id: string, flags: VerbFlags): Promise<void> {
  const endpoint = await ask(flags, wire.webhookEndpointSchema, `GET ${pathOf(id)}`)
  printResult(flags, endpoint, () => endpointReport(endpoint))
}

export function endpointReport(endpoint: wire.WebhookEndpointJson): string {
  const { id, status, disabled_reason: reason, consecutive_failures: failures } = endpoint
  return sheetText(`${id}  ${status}${reason === null ? '' : ` (${reason})`}`, [
    ['url', endpoint.url],
    ['events', endpoint.events.join(', ')],
    ['includes', endpoint.include.join(', ')],
    ['mail of', `${endpoint.mode}, ${endpoint.domains.join(', ') || 'all domains'}`],
    ['description', endpoint.description],
    ['added', localTime(endpoint.created_at)],
    ['changed', localTime(endpoint.updated_at)],
    ['last success', localTime(endpoint.last_success_at)],
    ['last failure', localTime(endpoint.last_failure_at)],
    ['failed in a row', failures === 0 ? null : String(failures)],
    ['pending', String(endpoint.pending)],
    ['dead letters', String(endpoint.dead_letters)],
  ])
}

async function enable(id: string, flags: VerbFlags): Promise<void> {
  const { dead_letters: givenUp } = await ask(flags, wire.webhookEndpointSchema, `GET ${pathOf(id)}`)
  const endpoint = await ask(flags, wire.webhookEndpointSchema, `PATCH ${pathOf(id)}`, { status: 'enabled' })
  printResult(flags, endpoint, () => `${printable(endpoint.url)} is ${endpoint.status}\n`)
  const replay = (status: string): string =>
    commandText(flags, { verb: 'webhook replay', options: { endpoint: endpoint.id, since: '30d', status } })
  printNote(flags, `Events meanwhile were kept. To send them now: ${replay('skipped')}`)
  // Its counters start anew: nothing tells of them afterwards.
  if (givenUp > 0) printNote(flags, `Before that ${givenUp} were given up. To send these now: ${replay('failed')}`)
}

async function remove(id: string, flags: ConsentFlags): Promise<void> {
  const endpoint = await ask(flags, wire.webhookEndpointSchema, `GET ${pathOf(id)}`)
  const text = printable(`${endpoint.url}: waiting deliveries, would be dropped: ${endpoint.pending}`)
  const command = { verb: 'webhook remove', arguments: [endpoint.id] }
  if (!isConfirmed(flags, { document: endpoint, text, command })) return
  const removed = await callServer(flags, `DELETE ${pathOf(id)}`)
  printResult(flags, removed, () => `${printable(endpoint.url)} is removed\n`)
}

async function test(id: string, flags: VerbFlags & { event?: string }): Promise<void> {
  const result = await ask(flags, wire.webhookTrialSchema, `POST ${pathOf(id)}/test`, { event: flags.event })
  const { ok, status, duration_ms: duration, error } = result
  const outcome = ok ? 'answered 200' : (error ?? `answered ${status}`)
  printResult(flags, result, () => `${ok ? 'ok' : 'failed'}: ${printable(outcome)}, ${duration} ms\n`)
  if (!ok) process.exitCode = EXIT.failed
}

async function rotateSecret(id: string, flags: VerbFlags & { secret?: string; grace?: string }): Promise<void> {
  const { secret, grace } = flags
  const body = { secret, grace_seconds: grace === undefined ? undefined : graceSeconds(grace) }
  const rotated = await ask(flags, wire.rotatedSecretSchema, `POST ${pathOf(id)}/rotate-secret`, body)
  printResult(flags, rotated, () => `${rotated.secret ?? rotated.id}\n`)
  if (rotated.secret !== undefined) printNote(flags, 'This is the only time the new secret is shown.')
  printNote(flags, `The old secret signs until ${localTime(rotated.switch_at)}, the new one afterwards.`)
}

/** Zero is no duration elsewhere. */
function graceSeconds(text: string): number {
  return text === '0' || text === '0s' ? 0 : Math.floor(durationFlag('--grace', text) / SECOND)
}
