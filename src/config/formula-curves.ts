/**
 * The curves of warmup.yaml that are written as a formula, with their stages, for `sternpost check` (egress/README.md
 * "Curves"). Files that cannot be read or judged give none.
 */
import { readFolder } from './source/read-folder.ts'
import { entriesAt, valueOf } from './source/source-tree.ts'
import { inheritWarmupDefaults, resolveWarmupSettings, warmupSchema } from './settings/warmup-settings.ts'

interface FormulaCurve {
  name: string
  /** Messages per UTC day and IP. */
  stages: number[]
}

export function formulaCurves(folder: string, shippedFolder: string): FormulaCurve[] {
  const root = readFolder(folder, shippedFolder, ['warmup']).trees.warmup
  if (root === undefined) return []
  const parsed = warmupSchema.safeParse(inheritWarmupDefaults(valueOf(root)))
  if (!parsed.success) return []
  const { curves } = resolveWarmupSettings(parsed.data)
  return entriesAt(root, ['curves'])
    .filter(([name]) => parsed.data.curves[name]?.formula !== undefined)
    .map(([name]) => ({ name, stages: curves[name]?.stages ?? [] }))
}
