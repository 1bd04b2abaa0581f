/**
 * Everything that spans several keys or several files (config/README.md "Checks across files"), without the network.
 *
 * Names are checked on the trees, so that a mistake elsewhere in a file does not hide them; values are checked where
 * their file could be judged. Nothing throws.
 */
import type { CheckConditions, JudgedSettings } from './check-input.ts'
import type { Finding, Trees } from '../source/finding.ts'
import { poolChecks } from './pool-checks.ts'
import { ruleChecks } from './rule-checks.ts'
import { serverChecks } from './server-checks.ts'
import { warmupChecks } from './warmup-checks.ts'

export function crossChecks(settings: JudgedSettings, trees: Trees, conditions: CheckConditions): Finding[] {
  return [
    ...(settings.server === undefined ? [] : serverChecks(settings.server, conditions.now)),
    ...poolChecks(settings, trees, conditions),
    ...warmupChecks(settings, trees),
    ...ruleChecks(trees),
  ]
}
