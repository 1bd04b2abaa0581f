/**
 * `posthorn check`: validates the configuration files and prints every mistake, and the stages that formulas of curves
 * come to; exit 78 when there is an error. With --dns also what the DNS says of each IP: its reverse name, its EHLO
 * name, SPF. Those are warnings.
 */
import type { Command } from 'commander'
import { ConfigurationError, EXIT } from '../base/errors.ts'
import type { Mistake } from '../base/errors.ts'
import { explainMistakes, sortMistakes } from '../config/explain-mistake.ts'
import { loadConfiguration } from '../config/load-configuration.ts'
import type { Configuration } from '../config/load-configuration.ts'
import { formulaCurves } from '../config/formula-curves.ts'
import { locateIps } from '../config/locate-ips.ts'
import { createDnsResolver } from '../network/dns-resolver.ts'
import { checkEgressNames } from '../senders/check-egress-names.ts'
import { misuse } from './flag-values.ts'
import { configurationFolder, SHIPPED_FOLDER } from './shared-options.ts'

interface CheckFlags {
  config?: string
  dns?: boolean
  offline?: boolean
  json?: boolean
}

export function addCheckCommand(program: Command): void {
  program
    .command('check')
    .description('validate the configuration files')
    .option('--config <dir>', 'folder of the configuration files')
    .option('--dns', 'also ask the DNS about each IP: reverse name (PTR), EHLO name, SPF')
    .option('--offline', 'leave out what needs this machine, such as addresses that must be bindable')
    .option('--json', 'print one JSON document')
    .addHelpText('after', '\nExample:\n  posthorn check --config /etc/posthorn\n  posthorn check --dns')
    .action(check)
}

async function check(flags: CheckFlags): Promise<void> {
  if (flags.dns === true && flags.offline === true) throw misuse('--dns needs the network, which --offline leaves out')
  const folder = configurationFolder(flags.config)
  const mistakes = await findMistakes(folder, flags)
  const isValid = mistakes.every((mistake) => mistake.severity === 'warning')
  if (flags.json === true) process.stdout.write(`${JSON.stringify(mistakes)}\n`)
  else if (mistakes.length > 0) process.stderr.write(`${explainMistakes(mistakes)}\n`)
  if (flags.json !== true && isValid) {
    for (const { name, stages } of formulaCurves(folder, SHIPPED_FOLDER)) {
      process.stdout.write(`Curve ${name}: ${stages.join(', ')}\n`)
    }
    process.stdout.write(`The configuration in ${folder} is valid.\n`)
  }
  process.exitCode = isValid ? EXIT.done : EXIT.configuration
}

async function findMistakes(folder: string, { dns, offline = false }: CheckFlags): Promise<readonly Mistake[]> {
  try {
    const configuration = loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER, offline, neededSecrets: 'files' })
    if (dns !== true) return configuration.warnings
    return sortMistakes([...configuration.warnings, ...(await dnsWarnings(folder, configuration))])
  } catch (thrown) {
    if (thrown instanceof ConfigurationError) return thrown.mistakes
    throw thrown
  }
}

async function dnsWarnings(folder: string, { server, pools }: Configuration): Promise<Mistake[]> {
  const { servers, timeout, tries } = server.dns
  const resolver = createDnsResolver({ servers, timeoutMilliseconds: timeout, tries })
  const options = { resolver, spfName: server.domains.targets.spf, hostname: server.hostname, now: Date.now() }
  const placeOf = locateIps(folder, SHIPPED_FOLDER)
  const checks = Object.entries(pools.pools).flatMap(([pool, { ips }]) => ips.map(async (ip, index) => {
    const problems = await checkEgressNames(ip, options)
    return problems.map((message): Mistake =>
      ({ ...placeOf(pool, index), severity: 'warning', message, suggestion: null }))
  }))
  return (await Promise.all(checks)).flat()
}
