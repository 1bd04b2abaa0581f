/**
 * The whole configuration: five YAML files and their drop-ins in, one frozen typed value out, or every mistake.
 *
 * 1. Read each file with its drop-ins into a tree that knows where each value stands (`read-folder.ts`).
 * 2. Put the overrides of the caller over the tree of sternpost.yaml.
 * 3. Judge each tree by its schema; resolve what derives from other keys; read the secrets.
 * 4. Check what spans several keys or files, and the rules (config/README.md "Checks across files").
 * Throws ConfigurationError with all mistakes when one of them is an error; otherwise they are `warnings`.
 */
import { ConfigurationError, type Mistake } from '../base/errors.ts'
import { judge, mistakeOf } from './judge-file.ts'
import { resolveServerSettings, type NeededSecrets } from './resolve-server-settings.ts'
import type { BounceRuleSettings } from './settings/bounce-rule-settings.ts'
import type { PoolSettings } from './settings/pool-settings.ts'
import type { ProviderSettings } from './settings/provider-settings.ts'
import type { ServerSettings } from './settings/server-settings.ts'
import type { WarmupSettings } from './settings/warmup-settings.ts'
import { sortMistakes } from './source/explain-mistake.ts'
import { readFolder } from './source/read-folder.ts'
import { treeOf, withValueAt, type Position, type SourceNode } from './source/source-tree.ts'
import { poolChecks } from './checks/pool-checks.ts'
import { ruleChecks } from './checks/rule-checks.ts'
import { serverChecks } from './checks/server-checks.ts'
import { warmupChecks } from './checks/warmup-checks.ts'

/** Where a mistake in an override stands. */
const OVERRIDE_FILE = '<override>'

export interface Configuration {
  /** sternpost.yaml */
  server: ServerSettings
  /** pools.yaml */
  pools: PoolSettings
  /** warmup.yaml */
  warmup: WarmupSettings
  /** providers.yaml */
  providers: ProviderSettings
  /** bounces.yaml */
  bounces: BounceRuleSettings
  warnings: Mistake[]
}

export interface LoadOptions {
  folder: string
  /** Holds the files that the folder does not. */
  shippedFolder: string
  /** Dotted path in sternpost.yaml -> value as YAML would give it; wins over the files. */
  overrides?: Record<string, unknown>
  /** Leaves out what asks this machine, such as which addresses its interfaces have. */
  offline?: boolean
  /** Where systemd put the credentials; the environment of the process when left out. */
  credentialsFolder?: string | undefined
  /** Which secrets must be readable; 'all' when left out. */
  neededSecrets?: NeededSecrets
  /** For the age of certificates, Unix milliseconds. */
  now?: number
}

export function loadConfiguration(options: LoadOptions): Configuration {
  const { trees, mistakes } = readFolder(options.folder, options.shippedFolder)
  if (trees.sternpost !== undefined) trees.sternpost = withOverrides(trees.sternpost, options.overrides ?? {})
  const pools = judge.pools(trees.pools, mistakes)
  const warmup = judge.warmup(trees.warmup, mistakes)
  const providers = judge.providers(trees.providers, mistakes)
  const bounces = judge.bounces(trees.bounces, mistakes)
  const parsed = judge.sternpost(trees.sternpost, mistakes)
  const resolved =
    parsed &&
    resolveServerSettings(parsed, {
      credentialsFolder: options.credentialsFolder ?? process.env['CREDENTIALS_DIRECTORY'],
      neededSecrets: options.neededSecrets ?? 'all',
    })
  const server = resolved?.settings
  const settings = { server, pools, warmup, providers }
  // Names are checked on the trees, so that a mistake elsewhere in a file does not hide them.
  const findings = [
    ...(resolved?.findings ?? []),
    ...(server === undefined ? [] : serverChecks(server, options.now ?? Date.now())),
    ...poolChecks(settings, trees, { isOffline: options.offline ?? false }),
    ...warmupChecks(settings, trees),
    ...ruleChecks(trees),
  ]
  mistakes.push(...findings.map((finding) => mistakeOf(finding, trees)))
  const sorted = sortMistakes(mistakes)
  const isComplete = sorted.every(({ severity }) => severity === 'warning')
  if (!isComplete || !server || !pools || !warmup || !providers || !bounces) throw new ConfigurationError(sorted)
  return deepFreeze({ server, pools, warmup, providers, bounces, warnings: sorted })
}

/**
 * Freezes a value and all it holds, so that no part of the program changes the configuration of another. Bytes stay as
 * they are: JavaScript cannot freeze them.
 */
export function deepFreeze<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return value
  for (const part of Object.values(value)) deepFreeze(part)
  return Object.freeze(value)
}

/** Each override replaces what stands at its path, and is told apart by its position. */
function withOverrides(root: SourceNode, overrides: Record<string, unknown>): SourceNode {
  const position: Position = { file: OVERRIDE_FILE, line: 1, column: 1 }
  return Object.entries(overrides).reduce(
    (tree, [path, value]) => withValueAt(tree, path.split('.'), treeOf(value, position)),
    root,
  )
}
