/**
 * `sternpost provider`: the blocks of providers.yaml with their limits and rules, read from the files; and which of
 * them a recipient domain falls into, as the running server finds it (egress/README.md "Providers").
 */
import type { Command } from 'commander'
import { explainMistakes } from '../../config/source/explain-mistake.ts'
import { durationText, rateText } from '../../config/settings/field-types.ts'
import { loadRules, type LoadedRules } from '../../config/read-parts.ts'
import { nearestName } from '../../config/settings/nearest-name.ts'
import { ANY_PROVIDER, type Provider, type ReplyRuleSettings } from '../../config/settings/provider-settings.ts'
import { callServer } from '../shared/api-client.ts'
import { misuse } from '../shared/flag-values.ts'
import {
  isTerminal,
  printNote,
  printResult,
  printable,
  sheetText,
  tableText,
  type OutputFlags,
} from '../shared/print.ts'
import { serverAddress } from '../shared/server-address.ts'
import { installedOrShippedFolder, SHIPPED_FOLDER } from '../shared/shared-options.ts'
import { addVerb, readAnswer, type VerbFlags } from '../shared/verb.ts'

interface Limits {
  connections: number
  messages_per_connection: number
  rate: string
  connection_rate: string
  tls: string
  idle: string
  failures: number
  scope: string
}

interface ProviderView extends Limits {
  id: string
  isp: string
  mx_suffixes: string[]
  domains: string[]
  /** Reply rules of its own, in the order in which they are tried. */
  rules: { id: string; file: string; line: number; do: string; for: string; match: string }[]
}

interface DomainRoute {
  domain: string
  problem: string | null
  provider: string | null
  isp: string | null
  route: string | null
  limits: Limits | null
  hosts: { name: string; addresses: string[]; tls: { policy: string; demand: string; text: string } }[]
}

type FileFlags = OutputFlags & { config?: string }

export function addProviderCommands(program: Command): void {
  const provider = program.command('provider').description('mailbox providers: limits and rules')
  addFileVerb(
    provider,
    'list',
    'list the providers of providers.yaml, in the order in which they are tried',
    '',
  ).action(list)
  addFileVerb(provider, 'show <id>', 'show a provider with its limits and reply rules', ' google').action(show)
  addVerb(provider, {
    words: 'explain <domain>',
    description: 'say which provider a recipient domain falls into, its hosts, limits and TLS',
    example: 'sternpost provider explain gmail.com',
  }).action(explain)
}

/** Needs no server. */
function addFileVerb(parent: Command, words: string, description: string, exampleArgument: string): Command {
  return parent
    .command(words)
    .description(description)
    .option('--config <dir>', 'folder of the configuration files (default: the installed ones, else the shipped ones)')
    .option('--json', 'print one JSON document')
    .option('--quiet', 'print the result alone')
    .addHelpText('after', `\nExample:\n  sternpost provider ${words.split(' ')[0]}${exampleArgument}`)
}

const HEADS = ['PROVIDER', 'ISP', 'CONNECTIONS', 'PER CONNECTION', 'RATE', 'TLS', 'SCOPE', 'RULES', 'MX SUFFIXES']

function list(flags: FileFlags): void {
  const rules = readRules(flags)
  const views = Object.entries(rules.providers.providers).map(([id, provider]) => viewOf(id, provider, rules))
  printResult(flags, views, () => tableText(HEADS, views.map(rowOf), isTerminal()))
  if (views.length === 0) printNote(flags, 'providers.yaml has no providers: the default limits hold for everybody.')
}

function show(id: string, flags: FileFlags): void {
  const rules = readRules(flags)
  const { providers } = rules.providers
  const provider = Object.hasOwn(providers, id) ? providers[id] : undefined
  if (provider === undefined) {
    const names = Object.keys(providers)
    const meant = nearestName(id, names)
    const fix = meant === null ? `known are ${names.join(', ')}` : `write ${meant}`
    throw misuse(`providers.yaml has no provider "${id}"; ${fix}`)
  }
  const view = viewOf(id, provider, rules)
  printResult(flags, view, () => providerReport(view))
}

async function explain(domain: string, flags: VerbFlags): Promise<void> {
  const path = `/v1/admin/domains/${encodeURIComponent(domain)}/route`
  const answer = await callServer(serverAddress(flags), { method: 'GET', path })
  const route = readAnswer<DomainRoute>(answer, 'domain', 'problem', 'provider', 'hosts')
  printResult(flags, route, () => routeReport(route))
}

function readRules(flags: FileFlags): LoadedRules {
  const rules = loadRules(installedOrShippedFolder(flags.config), SHIPPED_FOLDER)
  if (rules.warnings.length > 0) printNote(flags, explainMistakes(rules.warnings))
  return rules
}

function viewOf(id: string, provider: Provider, rules: LoadedRules): ProviderView {
  const { isp, mx_suffixes, domains, rate, connection_rate, idle, ...limits } = provider
  const own = rules.providers.replies.filter((rule) => rule.provider === id)
  return {
    id,
    isp,
    mx_suffixes,
    domains,
    ...limits,
    rate: rateText(rate),
    connection_rate: rateText(connection_rate),
    idle: durationText(idle),
    rules: own.map((rule) => ruleView(rule, rules)),
  }
}

function ruleView(rule: ReplyRuleSettings, rules: LoadedRules): ProviderView['rules'][number] {
  const { id, match } = rule
  const { file = '', line = 0 } = rules.replyRulePosition(id) ?? {}
  return { id, file, line, do: rule.do, for: durationText(rule.for), match }
}

function rowOf(view: ProviderView): string[] {
  const { id, isp, connections, messages_per_connection: messages, rate, tls, scope, rules, mx_suffixes } = view
  const suffixes = mx_suffixes.join(' ')
  return [id, isp, String(connections), String(messages), rate, tls, scope, String(rules.length), suffixes]
}

function providerReport(view: ProviderView): string {
  const head = sheetText(`${view.id}  isp ${view.isp}`, [
    ['mx_suffixes', view.mx_suffixes.join(', ')],
    ['domains', view.domains.join(', ')],
    ...limitLines(view),
  ])
  const rules = view.rules.map(
    ({ id, file, line, do: action, for: time, match }) =>
      `${printable(`  ${id}  ${action} for ${time}  ${match}`)}\n    ${file}:${line}\n`,
  )
  const general = `  and the rules of \`${ANY_PROVIDER}\`, which come behind them\n`
  return [head, '\nreply rules\n', ...rules, general].join('')
}

function limitLines(limits: Limits): [string, string][] {
  const { connections, messages_per_connection: messages, rate, connection_rate: connectionRate, scope } = limits
  return [
    ['connections', `${connections} from each IP, new ones at ${connectionRate}, idle for ${limits.idle}`],
    ['messages', `${messages} per connection, ${rate}`],
    ['tls', limits.tls],
    ['failures', `${limits.failures} in a row before the path backs off`],
    ['scope', scope === 'provider' ? 'one path for all domains of the provider' : 'a path for each set of MX hosts'],
  ]
}

function routeReport({ domain, problem, provider, isp, route, limits, hosts }: DomainRoute): string {
  const lines: [string, string | null][] =
    problem === null
      ? [
          ['provider', provider ?? 'none of providers.yaml: the default limits hold'],
          ['isp', isp],
          ['route', route],
          ...(limits === null ? [] : limitLines(limits)),
        ]
      : [['problem', problem]]
  const places = hosts.map(({ name, addresses, tls }) => `  ${name}  ${addresses.join(' ')}\n    ${tls.text}`)
  const list = places.length === 0 ? [] : ['\nmail hosts, best first\n', ...places.flatMap(linesOf)]
  return [sheetText(domain, lines), ...list].join('')
}

function linesOf(text: string): string[] {
  return text.split('\n').map((line) => `${printable(line)}\n`)
}
