/**
 * Each of the five files by its schema, and what it becomes then. A file without a tree, or with something wrong in it,
 * gives undefined; what is wrong is told with its place.
 */
import type { z } from 'zod'
import type { Mistake } from '../base/errors.ts'
import { bouncesSchema, resolveBounceRuleSettings } from './settings/bounce-rule-settings.ts'
import { poolsSchema, resolvePoolSettings } from './settings/pool-settings.ts'
import { providersSchema, resolveProviderSettings } from './settings/provider-settings.ts'
import { serverSchema } from './settings/server-settings.ts'
import { inheritWarmupDefaults, resolveWarmupSettings, warmupSchema } from './settings/warmup-settings.ts'
import { mistakesOf } from './source/explain-mistake.ts'
import type { FileName, Finding, Trees } from './source/finding.ts'
import { keyPositionAt, nearestPosition, nodeAt, pathText } from './source/at-path.ts'
import { emptyMap, valueOf, type SourceNode } from './source/source-tree.ts'

export const SCHEMAS = {
  sternpost: serverSchema,
  pools: poolsSchema,
  warmup: warmupSchema,
  providers: providersSchema,
  bounces: bouncesSchema,
} satisfies Record<FileName, z.ZodType>

type Judge<Settings> = (tree: SourceNode | undefined, mistakes: Mistake[]) => Settings | undefined

function judgedBy<Parsed, Settings>(
  schema: z.ZodType<Parsed>,
  resolve: (parsed: Parsed) => Settings,
  prepare: (value: unknown) => unknown = (value) => value,
): Judge<Settings> {
  return (tree, mistakes) => {
    if (tree === undefined) return undefined
    const result = schema.safeParse(prepare(valueOf(tree)), { reportInput: true })
    if (result.success) return resolve(result.data)
    mistakes.push(...mistakesOf(result.error.issues, tree))
    return undefined
  }
}

/** Of `sternpost` the names and secrets are still as the file says them: `resolve-server-settings.ts` goes on. */
export const judge = {
  sternpost: judgedBy(serverSchema, (parsed) => parsed),
  pools: judgedBy(poolsSchema, resolvePoolSettings),
  warmup: judgedBy(warmupSchema, resolveWarmupSettings, inheritWarmupDefaults),
  providers: judgedBy(providersSchema, resolveProviderSettings),
  bounces: judgedBy(bouncesSchema, resolveBounceRuleSettings),
}

/** A finding about a name, or about a whole map, points at the key, any other at the value. */
export function mistakeOf({ file, path, severity, message, suggestion, isAboutKey }: Finding, trees: Trees): Mistake {
  const root = trees[file] ?? emptyMap({ file, line: 1, column: 1 })
  const pointsAtKey = isAboutKey === true || nodeAt(root, path)?.kind === 'map'
  const position = (pointsAtKey ? keyPositionAt(root, path) : undefined) ?? nearestPosition(root, path)
  return { ...position, path: pathText(path), severity, message, suggestion }
}
