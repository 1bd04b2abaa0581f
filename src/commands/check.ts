/**
 * `posthorn check`: validates the configuration files and prints every mistake; exit 78 when there is an error.
 */
import type { Command } from 'commander'
import { ConfigurationError, EXIT } from '../base/errors.ts'
import type { Mistake } from '../base/errors.ts'
import { explainMistakes } from '../config/explain-mistake.ts'
import { loadConfiguration } from '../config/load-configuration.ts'
import { configurationFolder, SHIPPED_FOLDER } from './shared-options.ts'

interface CheckFlags {
  config?: string
  offline?: boolean
  json?: boolean
}

export function addCheckCommand(program: Command): void {
  program
    .command('check')
    .description('validate the configuration files')
    .option('--config <dir>', 'folder of the configuration files')
    .option('--offline', 'leave out what needs this machine, such as addresses that must be bindable')
    .option('--json', 'print one JSON document')
    .addHelpText('after', '\nExample:\n  posthorn check --config /etc/posthorn')
    .action(check)
}

async function check(flags: CheckFlags): Promise<void> {
  const folder = configurationFolder(flags.config)
  const mistakes = findMistakes(folder, flags.offline === true)
  const isValid = mistakes.every((mistake) => mistake.severity === 'warning')
  if (flags.json === true) process.stdout.write(`${JSON.stringify(mistakes)}\n`)
  else if (mistakes.length > 0) process.stderr.write(`${explainMistakes(mistakes)}\n`)
  if (flags.json !== true && isValid) process.stdout.write(`The configuration in ${folder} is valid.\n`)
  process.exitCode = isValid ? EXIT.done : EXIT.configuration
}

function findMistakes(folder: string, offline: boolean): readonly Mistake[] {
  try {
    return loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER, offline, neededSecrets: 'files' }).warnings
  } catch (thrown) {
    if (thrown instanceof ConfigurationError) return thrown.mistakes
    throw thrown
  }
}
