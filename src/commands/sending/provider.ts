/**
 * `sternpost provider`: the blocks of providers.yaml with their limits and rules, read from the files; and which of
 * them a recipient domain falls into, as the running server finds it (egress/README.md "Providers").
 */
import type { Command } from 'commander'
import { domainRouteSchema, type DomainRouteJson, type ProviderLimitsJson } from '../../api/queue.ts'
import { explainMistakes } from '../../config/source/explain-mistake.ts'
import { durationText, rateText } from '../../config/settings/field-types.ts'
import { loadRules, type LoadedRules } from '../../config/read-parts.ts'
import { nearestName } from '../../config/settings/nearest-name.ts'
import { ANY_PROVIDER, type Provider, type ReplyRuleSettings } from '../../config/settings/provider-settings.ts'
import { ask } from '../shared/api-client.ts'
import { installedOrShippedFolder, misuse, SHIPPED_FOLDER } from '../shared/flag-values.ts'
import { printList, printNote, printResult, type OutputFlags } from '../shared/print.ts'
import { linesText, printable, sheetText, type Columns } from '../shared/text.ts'
import { addLocalVerb, addVerb, withFileFlags, type VerbFlags } from '../shared/verb.ts'

type ProviderView = ReturnType<typeof viewOf>
type FileFlags = OutputFlags & { config?: string }

export function addProviderCommands(program: Command): void {
  const provider = program.command('provider').description('mailbox providers: limits and rules')
  const listed = 'list the providers of providers.yaml, in the order in which they are tried'
  withFileFlags(addLocalVerb(provider, 'list', listed)).action(list)
  const shown = 'show a provider with its limits and reply rules'
  withFileFlags(addLocalVerb(provider, 'show <id>', shown, 'google')).action(show)
  const explained = 'say which provider a recipient domain falls into, its hosts, limits and TLS'
  addVerb(provider, 'explain <domain>', explained, 'gmail.com').action(explain)
}

const COLUMNS: Columns<ProviderView> = {
  PROVIDER: ({ id }) => id,
  ISP: ({ isp }) => isp,
  CONNECTIONS: ({ connections }) => connections,
  'PER CONNECTION': (view) => view.messages_per_connection,
  RATE: ({ rate }) => rate,
  TLS: ({ tls }) => tls,
  SCOPE: ({ scope }) => scope,
  RULES: ({ rules }) => rules.length,
  'MX SUFFIXES': (view) => view.mx_suffixes.join(' '),
}

function list(flags: FileFlags): void {
  const rules = readRules(flags)
  const views = Object.entries(rules.providers.providers).map(([id, provider]) => viewOf(id, provider, rules))
  printList(flags, COLUMNS, views, 'providers.yaml has no providers: the default limits hold for everybody.')
}

function show(id: string, flags: FileFlags): void {
  const rules = readRules(flags)
  const { providers } = rules.providers
  const provider = Object.hasOwn(providers, id) ? providers[id] : undefined
  if (provider === undefined) throw misuse(noProvider(id, rules))
  const view = viewOf(id, provider, rules)
  printResult(flags, view, () => providerReport(view))
}

async function explain(domain: string, flags: VerbFlags): Promise<void> {
  const path = `/v1/admin/domains/${encodeURIComponent(domain)}/route` as const
  const route = await ask(flags, domainRouteSchema, `GET ${path}`)
  printResult(flags, route, () => routeReport(route))
}

/** A sentence that says what was meant. */
export function noProvider(id: string, { providers }: LoadedRules): string {
  const names = Object.keys(providers.providers)
  const meant = nearestName(id, names)
  const fix = meant === null ? `known are ${names.join(', ')}` : `write ${meant}`
  return `providers.yaml has no provider "${id}"; ${fix}`
}

export function readRules(flags: FileFlags): LoadedRules {
  const rules = loadRules(installedOrShippedFolder(flags.config), SHIPPED_FOLDER)
  if (rules.warnings.length > 0) printNote(flags, explainMistakes(rules.warnings))
  return rules
}

function viewOf(id: string, provider: Provider, rules: LoadedRules) {
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
    // In the order in which they are tried.
    rules: own.map((rule) => ruleView(rule, rules)),
  }
}

function ruleView(rule: ReplyRuleSettings, rules: LoadedRules) {
  const { id, match } = rule
  const { file = '', line = 0 } = rules.replyRulePosition(id) ?? {}
  return { id, file, line, do: rule.do, for: durationText(rule.for), match }
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

function limitLines(limits: ProviderLimitsJson): [string, string][] {
  const { connections, messages_per_connection: messages, rate, connection_rate: connectionRate, scope } = limits
  const inFlight = limits.in_flight === 1 ? 'one after the other' : `up to ${limits.in_flight} in flight`
  return [
    ['connections', `${connections} from each IP, new ones at ${connectionRate}, idle for ${limits.idle}`],
    ['messages', `${messages} per connection, ${inFlight}, ${rate}`],
    ['tls', limits.tls],
    ['failures', `${limits.failures} in a row before the path backs off`],
    ['scope', scope === 'provider' ? 'one path for all domains of the provider' : 'a path for each set of MX hosts'],
  ]
}

function routeReport({ domain, problem, provider, isp, route, limits, hosts }: DomainRouteJson): string {
  const known: [string, string | null][] = [
    ['provider', provider ?? 'none of providers.yaml: the default limits hold'],
    ['isp', isp],
    ['route', route],
    ...(limits === null ? [] : limitLines(limits)),
  ]
  const places = hosts.map(({ name, addresses, tls }) => `  ${name}  ${addresses.join(' ')}\n    ${tls.text}`)
  const list = places.length === 0 ? '' : `\nmail hosts, best first\n${linesText(places.join('\n').split('\n'))}`
  return sheetText(domain, problem === null ? known : [['problem', problem]]) + list
}
