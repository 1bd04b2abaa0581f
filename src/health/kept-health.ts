/**
 * What the checks found last, in a file beside the database, so that a restart neither forgets it nor tells the
 * operator everything again. A file that cannot be read is an empty memory; one that cannot be written throws.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { isPlainObject } from '../base/plain-object.ts'
import type { HealthFinding } from './checks/finding.ts'

export interface KeptHealth {
  /** Of the last run of all checks, Unix milliseconds; null: there was none. */
  ranAt: number | null
  findings: HealthFinding[]
  /** By check: when it was last ok. */
  okAt: Record<string, number>
  /** By channel and key of the problem: what the operator was told and what is not solved yet. */
  told: Record<string, Record<string, ToldProblem>>
  /** Size of the database, one entry for each day, oldest first. */
  sizes: { at: number; bytes: number }[]
}

export type ToldProblem = Pick<HealthFinding, 'check' | 'subject' | 'seen'>

const VERSION = 1
const PRIVATE = 0o600

export function readKeptHealth(file: string): KeptHealth {
  try {
    const kept: unknown = JSON.parse(readFileSync(file, 'utf8'))
    if (isKeptHealth(kept)) return kept
  } catch {
    // The first start, or a file that was cut short: the next run fills it again.
  }
  return { ranAt: null, findings: [], okAt: {}, told: {}, sizes: [] }
}

/** Whole or not at all. Throws the system's error. */
export function writeKeptHealth(file: string, kept: KeptHealth): void {
  writeFileSync(`${file}.new`, JSON.stringify({ version: VERSION, ...kept }), { mode: PRIVATE })
  renameSync(`${file}.new`, file)
}

/** Written by this program, so only the version can be wrong. */
function isKeptHealth(value: unknown): value is KeptHealth {
  return isPlainObject(value) && value['version'] === VERSION
}
