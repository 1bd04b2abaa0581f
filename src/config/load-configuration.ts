/**
 * The whole configuration: five YAML files and their drop-ins in, one frozen typed value out, or every mistake.
 *
 * 1. Read each file with its drop-ins into a tree that knows where each value stands (`read-folder.ts`).
 * 2. Put the overrides of the caller over the tree of sternpost.yaml.
 * 3. Judge each tree by its schema; resolve what derives from other keys; read the secrets.
 * 4. Check what spans several keys or files, and the rules.
 * Throws ConfigurationError with all mistakes when one of them is an error; otherwise they are `warnings`.
 */
import type { z } from 'zod'
import { ConfigurationError, type Mistake } from '../base/errors.ts'
import { bouncesSchema, resolveBounceRuleSettings, type BounceRuleSettings } from './settings/bounce-rule-settings.ts'
import { crossChecks } from './checks/cross-checks.ts'
import { deepFreeze } from './deep-freeze.ts'
import { mistakesOf, sortMistakes } from './source/explain-mistake.ts'
import type { FileName, Finding, Trees } from './source/finding.ts'
import { poolsSchema, resolvePoolSettings, type PoolSettings } from './settings/pool-settings.ts'
import { providersSchema, resolveProviderSettings, type ProviderSettings } from './settings/provider-settings.ts'
import { readFolder } from './source/read-folder.ts'
import { resolveServerSettings, type NeededSecrets } from './resolve-server-settings.ts'
import { serverSchema, type ServerSettings } from './settings/server-settings.ts'
import {
  emptyMap,
  keyPositionAt,
  nearestPosition,
  nodeAt,
  pathText,
  treeOf,
  valueOf,
  type MapEntry,
  type Position,
  type SourceNode,
} from './source/source-tree.ts'
import {
  inheritWarmupDefaults,
  resolveWarmupSettings,
  warmupSchema,
  type WarmupSettings,
} from './settings/warmup-settings.ts'

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
  const judged = judge(trees, mistakes)
  const server =
    judged.server === undefined
      ? undefined
      : resolveServerSettings(judged.server, {
          credentialsFolder: options.credentialsFolder ?? process.env['CREDENTIALS_DIRECTORY'],
          neededSecrets: options.neededSecrets ?? 'all',
        })
  const conditions = { isOffline: options.offline ?? false, now: options.now ?? Date.now() }
  const findings = [
    ...(server?.findings ?? []),
    ...crossChecks({ ...judged, server: server?.settings }, trees, conditions),
  ]
  mistakes.push(...findings.map((finding) => mistakeOf(finding, trees)))
  const sorted = sortMistakes(mistakes)
  const isComplete = sorted.every(({ severity }) => severity === 'warning')
  const { pools, warmup, providers, bounces } = judged
  if (!isComplete || !server || !pools || !warmup || !providers || !bounces) throw new ConfigurationError(sorted)
  return deepFreeze({ server: server.settings, pools, warmup, providers, bounces, warnings: sorted })
}

/** Each file by its schema; undefined, and its mistakes told, where something in it is wrong. */
function judge(trees: Trees, mistakes: Mistake[]) {
  const parse = <Schema extends z.ZodType>(schema: Schema, root: Trees[FileName]): z.infer<Schema> | undefined => {
    if (root === undefined) return undefined
    const value = root === trees.warmup ? inheritWarmupDefaults(valueOf(root)) : valueOf(root)
    const result = schema.safeParse(value, { reportInput: true })
    if (result.success) return result.data
    mistakes.push(...mistakesOf(result.error.issues, root))
    return undefined
  }
  const pools = parse(poolsSchema, trees.pools)
  const warmup = parse(warmupSchema, trees.warmup)
  const providers = parse(providersSchema, trees.providers)
  const bounces = parse(bouncesSchema, trees.bounces)
  return {
    server: parse(serverSchema, trees.sternpost),
    pools: pools && resolvePoolSettings(pools),
    warmup: warmup && resolveWarmupSettings(warmup),
    providers: providers && resolveProviderSettings(providers),
    bounces: bounces && resolveBounceRuleSettings(bounces),
  }
}

/** Each override replaces what stands at its path, and is told apart by its position. */
function withOverrides(root: SourceNode, overrides: Record<string, unknown>): SourceNode {
  const position: Position = { file: OVERRIDE_FILE, line: 1, column: 1 }
  return Object.entries(overrides).reduce(
    (tree, [path, value]) => withValue(tree, path.split('.'), treeOf(value, position)),
    root,
  )
}

function withValue(root: SourceNode, path: string[], value: SourceNode): SourceNode {
  const [key, ...rest] = path
  if (key === undefined) return value
  const { position } = value
  const base = root.kind === 'map' ? root : emptyMap(position)
  const below = base.entries.get(key)?.value ?? emptyMap(position)
  const entry: MapEntry = { keyPosition: position, value: withValue(below, rest, value) }
  return { ...base, entries: new Map([...base.entries, [key, entry]]) }
}

/** A finding about a name, or about a whole map, points at the key, any other at the value. */
function mistakeOf({ file, path, severity, message, suggestion, isAboutKey }: Finding, trees: Trees): Mistake {
  const root = trees[file] ?? emptyMap({ file, line: 1, column: 1 })
  const pointsAtKey = isAboutKey === true || nodeAt(root, path)?.kind === 'map'
  const position = (pointsAtKey ? keyPositionAt(root, path) : undefined) ?? nearestPosition(root, path)
  return { ...position, path: pathText(path), severity, message, suggestion }
}
