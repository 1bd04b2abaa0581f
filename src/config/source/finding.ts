/** What a check found: in which file, where, and what is wrong; the loader makes a mistake with a position of it. */
import type { SourceNode, SourcePath } from './source-tree.ts'

/** The five files, without `.yaml`. */
export const FILE_NAMES = ['sternpost', 'pools', 'warmup', 'providers', 'bounces'] as const
export type FileName = (typeof FILE_NAMES)[number]

/** Each file merged with its drop-ins; not there where one of them could not be read. */
export type Trees = Partial<Record<FileName, SourceNode>>

export interface Finding {
  file: FileName
  path: SourcePath
  severity: 'error' | 'warning'
  message: string
  suggestion: string | null
  /** The name at the end of the path is what is wrong, not the value behind it. */
  isAboutKey?: boolean
}

export function errorAt(file: FileName, path: SourcePath, message: string, suggestion: string | null = null): Finding {
  return { file, path, severity: 'error', message, suggestion }
}

export function warningAt(file: FileName, path: SourcePath, message: string): Finding {
  return { file, path, severity: 'warning', message, suggestion: null }
}
