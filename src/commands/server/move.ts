/**
 * `sternpost migrate --to`: all data of a stopped server to PostgreSQL, or back to the file of SQLite. The rest of the
 * settings stays: which engine is used is said by `storage.engine`. Throws ProcessExit 64 for a target that is none.
 */
import { readFileSync } from 'node:fs'
import { snakeFields } from '../../api/names.ts'
import { errorCode, errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import { readDatabaseUrl } from '../../config/settings/database-url.ts'
import type { ServerSettings } from '../../config/settings/server-settings.ts'
import * as offline from '../../store/open/offline.ts'
import { fileLocationFor, postgresLocationFor } from '../../store/store-location.ts'
import { heldMailCommands } from '../shared/command-text.ts'
import { misuse } from '../shared/flag-values.ts'
import { printNote, printResult, progressLine, type OutputFlags } from '../shared/print.ts'
import { sheetText } from '../shared/text.ts'

type Moved = Awaited<ReturnType<typeof offline.moveData>> & { movedTo?: string | null }

const NO_URL = 'storage.url of sternpost.yaml has to say where PostgreSQL is, for this user to read'

export async function moveTo(
  target: string,
  server: ServerSettings,
  flags: OutputFlags & { config?: string },
): Promise<void> {
  const line = progressLine(flags)
  const onProgress = ({ step, table, rows, total }: offline.MoveProgress): void =>
    line.show(`${step} ${table}  ${rows.toLocaleString('en')} of ${total.toLocaleString('en')}`)
  const file = fileLocationFor(server)
  const { url: configured } = server.storage
  let moved: Moved
  try {
    if (target === 'sqlite') {
      const from = postgresLocationFor(server, requiredUrl(configured))
      moved = await offline.moveToFile({ from, to: file, now: Date.now(), onProgress })
    } else {
      const url = target === 'postgres' ? requiredUrl(configured) : urlIn(target)
      offline.requireDatabase(file.folder)
      moved = await offline.moveData({ from: file, to: postgresLocationFor(server, url), onProgress })
    }
  } catch (thrown) {
    if (thrown instanceof ProcessExit) throw thrown
    const sentence = `the move stopped: ${errorText(thrown)}. Run it again: it goes on where it was`
    throw new ProcessExit(EXIT.tryAgain, sentence, { cause: thrown })
  } finally {
    line.end()
  }
  printResult(flags, snakeFields(moved), () => movedText(moved))
  const engine = target === 'sqlite' ? 'sqlite' : 'postgres'
  if (server.storage.engine !== engine) printNote(flags, `Now set storage.engine: ${engine} in sternpost.yaml.`)
  if (moved.held === 0) return
  const why = 'so that what is still in the old place is not sent twice'
  printNote(flags, `${moved.held} messages are held, ${why}. Start the server, then:`)
  for (const line of heldMailCommands(flags, moved)) printNote(flags, line)
}

/** A URL, or a file that it is in: the command line is seen by everybody on this machine. */
function urlIn(target: string): string {
  const reading = readDatabaseUrl(target.includes('://') ? target : textOf(target))
  if (reading.ok) return reading.value
  throw misuse(`--to: ${reading.problem}`)
}

function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (thrown) {
    const problem = errorCode(thrown) === 'ENOENT' ? 'there is no such file' : errorText(thrown)
    throw misuse(`--to: write postgres, sqlite, a URL, or a file with a URL; ${file}: ${problem}`)
  }
}

export function requiredUrl(url: string | null): string {
  if (url === null || url === '') throw new ProcessExit(EXIT.configuration, NO_URL)
  return url
}

function movedText({ counts, checksum, held, isResumed, movedTo }: Moved): string {
  const filled = Object.entries(counts).filter(([, rows]) => rows > 0)
  return sheetText(`All data moved${isResumed ? ', going on where the last move was' : ''}. Compared row by row.`, [
    ...filled.map(([table, rows]) => [table, rows.toLocaleString('en')] as const),
    ['held', String(held)],
    ['SHA-256 of all rows', checksum],
    ['before', movedTo ? `what was there is in ${movedTo}` : null],
  ])
}
