/**
 * A file in `data_dir` says that this server had data, in whichever engine. A start that finds none would forget all mail
 * without a word: it is refused.
 */
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const TEXT = 'This server has data. While this file is here, a start without it is refused.\n'
/** For the service's user alone. */
const FOLDER_MODE = 0o700

export function markPath(folder: string): string {
  return join(folder, 'sternpost.made')
}

export function hadData(folder: string): boolean {
  return existsSync(markPath(folder))
}

/** Makes the folder where it is missing: some files belong to this machine, whatever the engine. */
export function noteData(folder: string): void {
  if (hadData(folder)) return
  mkdirSync(folder, { recursive: true, mode: FOLDER_MODE })
  writeFileSync(markPath(folder), TEXT)
}

/** What a refusal ends with. */
export function toBeginAnew(folder: string): string {
  return `remove ${markPath(folder)} to begin without any data`
}
