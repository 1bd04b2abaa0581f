/**
 * Parts of a configuration, for verbs that need nothing else of it: mistakes in the other files are not theirs. Throws
 * ConfigurationError with the mistakes of the files that are read, where nothing else is said.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigurationError, type Mistake } from '../base/errors.ts'
import { ruleChecks } from './checks/rule-checks.ts'
import { judge, mistakeOf } from './judge-file.ts'
import type { BounceRuleSettings } from './settings/bounce-rule-settings.ts'
import { sortMistakes } from './source/explain-mistake.ts'
import { readFolder } from './source/read-folder.ts'
import { entriesAt, itemsAt, nearestPosition, nodeAt, pathText, textAt } from './source/at-path.ts'
import { emptyMap, type Position, type SourceNode } from './source/source-tree.ts'
import { readYamlSource } from './source/yaml-source.ts'

/**
 * Where the server listens for its administrator: that must work whatever was written since it started. With mistakes in
 * sternpost.yaml it is the path that is named there all the same; null: none is.
 */
export function readAdminSocket(folder: string, shippedFolder: string): { path: string | null; mistakes: Mistake[] } {
  const { trees, mistakes } = readFolder(folder, shippedFolder, ['sternpost'])
  const server = judge.sternpost(trees.sternpost, mistakes)
  if (server !== undefined) return { path: server.listen.admin_socket, mistakes: [] }
  const path = trees.sternpost && textAt(trees.sternpost, ['listen', 'admin_socket'])
  return { path: path?.startsWith('/') === true ? path : null, mistakes }
}

/**
 * The curves of warmup.yaml that are written as a formula, with their stages in messages per UTC day and IP
 * (egress/README.md "Curves"). Files that cannot be read or judged give none.
 */
export function formulaCurves(folder: string, shippedFolder: string): { name: string; stages: number[] }[] {
  const { trees, mistakes } = readFolder(folder, shippedFolder, ['warmup'])
  const root = trees.warmup
  const curves = judge.warmup(root, mistakes)?.curves
  if (root === undefined || curves === undefined) return []
  return entriesAt(root, ['curves'])
    .filter(([name]) => nodeAt(root, ['curves', name, 'formula']) !== undefined)
    .map(([name]) => ({ name, stages: curves[name]?.stages ?? [] }))
}

/**
 * Where the IP at a place in the list of a pool stands, for what is found out about it after the files were judged; its
 * `path` is as in `pools.default.ips[1]`. Files that could not be read give the folder.
 */
export function locateIps(
  folder: string,
  shippedFolder: string,
): (pool: string, index: number) => Position & { path: string } {
  const root = readFolder(folder, shippedFolder, ['pools']).trees.pools ?? nowhereIn(folder)
  return (pool, index) => {
    const path = ['pools', pool, 'ips', index]
    return { ...nearestPosition(root, path), path: pathText(path) }
  }
}

/**
 * The rules of the bounces.yaml that comes with the package: without a configuration. Throws the file system's error
 * when it is not there.
 */
export function readShippedBounceRules(shippedFolder: string): BounceRuleSettings['rules'] {
  const file = join(shippedFolder, 'bounces.yaml')
  const reading = readYamlSource(file, readFileSync(file))
  const mistakes = reading.kind === 'refused' ? reading.mistakes : []
  const bounces = judge.bounces(reading.kind === 'read' ? reading.tree : undefined, mistakes)
  if (bounces === undefined) throw new ConfigurationError(mistakes)
  return bounces.rules
}

export type LoadedRules = ReturnType<typeof loadRules>

/** The rules of providers.yaml and bounces.yaml with their drop-ins, and where each one stands. */
export function loadRules(folder: string, shippedFolder: string) {
  const { trees, mistakes } = readFolder(folder, shippedFolder, ['providers', 'bounces'])
  const providers = judge.providers(trees.providers, mistakes)
  const bounces = judge.bounces(trees.bounces, mistakes)
  const found = sortMistakes([...mistakes, ...ruleChecks(trees).map((finding): Mistake => mistakeOf(finding, trees))])
  const isWrong = found.some(({ severity }) => severity === 'error')
  if (isWrong || providers === undefined || bounces === undefined) throw new ConfigurationError(found)
  return {
    warnings: found,
    providers,
    bounces,
    /** Where the rule with this id stands; ids are unique over all files. */
    replyRulePosition: (id: string) => positionOf(trees.providers ?? nowhereIn(folder), 'replies', id),
    bounceRulePosition: (id: string) => positionOf(trees.bounces ?? nowhereIn(folder), 'rules', id),
  }
}

function nowhereIn(folder: string): SourceNode {
  return emptyMap({ file: folder, line: 1, column: 1 })
}

function positionOf(root: SourceNode, list: string, id: string): Position | undefined {
  return itemsAt(root, [list]).find((item) => textAt(item, ['id']) === id)?.position
}
