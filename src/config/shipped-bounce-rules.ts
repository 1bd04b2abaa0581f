/**
 * The rules of the bounces.yaml that comes with the package, for verbs that need neither server nor configuration.
 *
 * Throws ConfigurationError when the file is not as it was shipped, the file system's error when it is not there.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigurationError } from '../base/errors.ts'
import { bouncesSchema, resolveBounceRuleSettings, type BounceRuleSettings } from './settings/bounce-rule-settings.ts'
import { mistakesOf } from './source/explain-mistake.ts'
import { valueOf } from './source/source-tree.ts'
import { readYamlSource } from './source/yaml-source.ts'

export function readShippedBounceRules(shippedFolder: string): BounceRuleSettings['rules'] {
  const file = join(shippedFolder, 'bounces.yaml')
  const reading = readYamlSource(file, readFileSync(file))
  if (reading.kind === 'refused') throw new ConfigurationError(reading.mistakes)
  const result = bouncesSchema.safeParse(valueOf(reading.tree), { reportInput: true })
  if (!result.success) throw new ConfigurationError(mistakesOf(result.error.issues, reading.tree))
  return resolveBounceRuleSettings(result.data).rules
}
