/**
 * The rules of providers.yaml and bounces.yaml with their drop-ins, and where each one stands: for verbs that need
 * nothing else of the configuration.
 *
 * Throws ConfigurationError with the mistakes of these two files; the others are not read.
 */
import { ConfigurationError, type Mistake } from '../base/errors.ts'
import { bouncesSchema, resolveBounceRuleSettings, type BounceRuleSettings } from './settings/bounce-rule-settings.ts'
import { mistakesOf, sortMistakes } from './source/explain-mistake.ts'
import { providersSchema, resolveProviderSettings, type ProviderSettings } from './settings/provider-settings.ts'
import { readFolder } from './source/read-folder.ts'
import { ruleChecks } from './checks/rule-checks.ts'
import {
  emptyMap,
  itemsAt,
  nearestPosition,
  pathText,
  textAt,
  valueOf,
  type Position,
  type SourceNode,
} from './source/source-tree.ts'

export interface LoadedRules {
  warnings: Mistake[]
  providers: ProviderSettings
  bounces: BounceRuleSettings
  /** Where the rule with this id stands; ids are unique over all files. */
  replyRulePosition(id: string): Position | undefined
  bounceRulePosition(id: string): Position | undefined
}

export function loadRules(folder: string, shippedFolder: string): LoadedRules {
  const { trees, mistakes } = readFolder(folder, shippedFolder, ['providers', 'bounces'])
  const nowhere = emptyMap({ file: folder, line: 1, column: 1 })
  const { providers: providerTree = nowhere, bounces: bounceTree = nowhere } = trees
  const providers = providersSchema.safeParse(valueOf(providerTree), { reportInput: true })
  const bounces = bouncesSchema.safeParse(valueOf(bounceTree), { reportInput: true })
  const found: Mistake[] = [
    ...mistakes,
    ...(trees.providers === undefined ? [] : mistakesOf(providers.error?.issues ?? [], providerTree)),
    ...(trees.bounces === undefined ? [] : mistakesOf(bounces.error?.issues ?? [], bounceTree)),
    ...ruleChecks(trees).map(({ file, path, severity, message, suggestion }) => ({
      ...nearestPosition(trees[file] ?? nowhere, path),
      path: pathText(path),
      severity,
      message,
      suggestion,
    })),
  ]
  const isWrong = found.some(({ severity }) => severity === 'error')
  if (isWrong || !providers.success || !bounces.success) throw new ConfigurationError(sortMistakes(found))
  return {
    warnings: sortMistakes(found),
    providers: resolveProviderSettings(providers.data),
    bounces: resolveBounceRuleSettings(bounces.data),
    replyRulePosition: (id) => positionOf(providerTree, 'replies', id),
    bounceRulePosition: (id) => positionOf(bounceTree, 'rules', id),
  }
}

function positionOf(root: SourceNode, list: string, id: string): Position | undefined {
  return itemsAt(root, [list]).find((item) => textAt(item, ['id']) === id)?.position
}
