/**
 * `sternpost check`: validates the configuration files and prints every mistake, and the stages that formulas of curves
 * come to; exit 78 when there is an error. With --dns also what the DNS says of each IP: its reverse name, its EHLO
 * name, SPF. Those are warnings.
 */
import type { Command } from 'commander'
import { ConfigurationError, EXIT, type Mistake } from '../../base/errors.ts'
import { explainMistakes, sortMistakes } from '../../config/source/explain-mistake.ts'
import { loadConfiguration, type Configuration } from '../../config/load-configuration.ts'
import { formulaCurves, locateIps } from '../../config/read-parts.ts'
import { checkForwardNames, checkPtr, checkOwnNames } from '../../health/checks/check-ip-names.ts'
import { runChecks } from '../../health/checks/check.ts'
import { worldOf } from './doctor-world.ts'
import { configurationFolder, misuse, SHIPPED_FOLDER } from '../shared/flag-values.ts'
import { jsonText } from '../shared/text.ts'
import { addLocalVerb, CONFIG_FLAG, type Given } from '../shared/verb.ts'

type CheckFlags = Given<'config'> & Partial<Record<'dns' | 'offline' | 'json', boolean>>

/** As `sternpost check` and as `sternpost config check`. */
export function addCheckCommand(parent: Command): void {
  addLocalVerb(parent, 'check', 'validate the configuration files', '--config /etc/sternpost\n--dns')
    .option(...CONFIG_FLAG)
    .option('--dns', 'also ask the DNS about each IP: reverse name (PTR), EHLO name, SPF')
    .option('--offline', 'leave out what needs this machine, such as addresses that must be bindable')
    .option('--json', 'print one JSON document')
    .action(check)
}

async function check(flags: CheckFlags): Promise<void> {
  if (flags.dns === true && flags.offline === true) throw misuse('--dns needs the network, which --offline leaves out')
  const folder = configurationFolder(flags.config)
  const mistakes = await findMistakes(folder, flags)
  const isValid = mistakes.every((mistake) => mistake.severity === 'warning')
  if (flags.json === true) process.stdout.write(jsonText(mistakes))
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

/** What `sternpost doctor` says of each IP: reverse name, EHLO name, SPF. */
async function dnsWarnings(folder: string, configuration: Configuration): Promise<Mistake[]> {
  const findings = await runChecks([checkPtr, checkForwardNames, checkOwnNames], worldOf(folder, configuration, {}))
  const placeOf = locateIps(folder, SHIPPED_FOLDER)
  const places = new Map(
    Object.entries(configuration.pools.pools).flatMap(([pool, { ips }]) =>
      ips.map(({ address }, index) => [address, placeOf(pool, index)] as const),
    ),
  )
  return findings
    .filter(({ result }) => result === 'warn' || result === 'fail')
    .flatMap((finding) => {
      const place = places.get(finding.subject ?? '')
      const message = `${finding.check}: ${finding.seen}${finding.fix === null ? '' : `. Fix: ${finding.fix}`}`
      return place === undefined ? [] : [{ ...place, severity: 'warning' as const, message, suggestion: null }]
    })
}
