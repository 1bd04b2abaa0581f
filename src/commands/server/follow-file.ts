/**
 * The lines of a file that is written to, and of the one that takes its place when it is rotated: renamed and made
 * anew, or emptied, as `tail -F` does. Ends when interrupted. Throws what opening and reading throw; that the file is
 * not there for a while is no error, unless at the beginning.
 *
 * A new file is read once something stands in it, and after the rest of the old one, to which its writer may still
 * write. A line that was written less than a quarter of a second before its file was emptied or lost cannot be seen.
 */
import { open, stat, type FileHandle } from 'node:fs/promises'
import type { Clock } from '../../base/clock.ts'
import { errorCode } from '../../base/errors.ts'
import { pause } from '../shared/verb.ts'

/** In milliseconds. */
const LOOK_EVERY = 250
const PIECE_BYTES = 64 * 1_024

export async function* followFile(path: string, clock: Clock, signal: AbortSignal): AsyncGenerator<string> {
  let reader = createReader(await open(path))
  try {
    while (!signal.aborted) {
      yield* reader.lines(signal)
      const next = await reader.successor(path)
      if (next === null) {
        await pause(clock, LOOK_EVERY, signal)
        continue
      }
      try {
        yield* reader.lines(signal)
        yield* reader.rest()
      } finally {
        await reader.close()
        reader = createReader(next)
      }
    }
  } finally {
    await reader.close()
  }
}

interface Reader {
  /** Whole ones, until there are no more. */
  lines(signal: AbortSignal): AsyncGenerator<string>
  /** What was written without a line end. */
  rest(): string[]
  /** The file to go on with in place of this one, opened; null: this one. */
  successor(path: string): Promise<FileHandle | null>
  close(): Promise<void>
}

function createReader(file: FileHandle): Reader {
  const buffer = Buffer.alloc(PIECE_BYTES)
  let read = 0
  // In Latin-1 no character is cut in two.
  let rest = ''

  return {
    async *lines(signal) {
      while (!signal.aborted) {
        const { bytesRead } = await file.read(buffer)
        if (bytesRead === 0) return
        read += bytesRead
        const pieces = (rest + buffer.toString('latin1', 0, bytesRead)).split('\n')
        rest = pieces.pop() ?? ''
        yield* pieces.map(toText)
      }
    },
    rest: () => (rest === '' ? [] : [toText(rest)]),
    async successor(path) {
      const own = await file.stat()
      // A pipe has no size, and nobody renames it.
      if (!own.isFile()) return null
      if (own.size < read) return openIfThere(path)
      const named = await ifThere(stat(path))
      const isOther = named !== null && (named.ino !== own.ino || named.dev !== own.dev)
      return isOther && named.size > 0 ? openIfThere(path) : null
    },
    close: () => file.close(),
  }
}

const openIfThere = (path: string): Promise<FileHandle | null> => ifThere(open(path))

/** null: there is no such file now. */
async function ifThere<Value>(asked: Promise<Value>): Promise<Value | null> {
  try {
    return await asked
  } catch (thrown) {
    if (errorCode(thrown) === 'ENOENT') return null
    throw thrown
  }
}

function toText(latin1: string): string {
  return Buffer.from(latin1, 'latin1').toString('utf8')
}
