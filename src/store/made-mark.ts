/**
 * A file in `data_dir` says that this server had data, in whichever engine. A start that finds none would forget all mail
 * without a word: it is refused. With PostgreSQL it has the number of the last commit as well: by it a start knows a
 * database that lacks some of what was committed. It may say less than that after a kill, and never more.
 */
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'

const TEXT = 'This server has data. While this file is here, a start without it is refused.\n'
/** For the service's user alone. */
const FOLDER_MODE = 0o700
/** Written over the earlier one, which must not show behind it. */
const NOTE_LENGTH = 400

/** The last commit that a server of this folder is known to have made. */
export interface NotedCommit {
  nodeId: string
  /** As in `last_commits`. */
  number: number
  /** Unix milliseconds. */
  at: number
}

export interface CommitNotes {
  /** A commit happened. Never throws: a full disk keeps no mail. */
  note(number: number): void
  close(): void
}

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

/** null: nothing that can be read. */
export function notedCommit(folder: string): NotedCommit | null {
  try {
    const noted = JSON.parse(readFileSync(markPath(folder), 'utf8').slice(TEXT.length)) as Partial<NotedCommit>
    const { nodeId, number, at } = noted
    return typeof nodeId === 'string' && Number.isSafeInteger(number) && Number.isSafeInteger(at)
      ? (noted as NotedCommit)
      : null
  } catch {
    return null
  }
}

/** Of a server that begins: what was noted before is forgotten. */
export function openCommitNotes(folder: string, nodeId: string): CommitNotes {
  noteData(folder)
  const file = openSync(markPath(folder), 'r+')
  const write = (text: string): void => {
    try {
      writeSync(file, `${text.padEnd(NOTE_LENGTH)}\n`, TEXT.length)
    } catch {
      // The earlier note says less, and nothing wrong.
    }
  }
  write('')
  return {
    note: (number) => write(JSON.stringify({ nodeId, number, at: Date.now() } satisfies NotedCommit)),
    close: () => closeSync(file),
  }
}
