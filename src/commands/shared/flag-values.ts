/**
 * Values of flags that several verbs take: durations, times, counts, files, the folder of the configuration. Each
 * throws ProcessExit 64 with what to write instead.
 */
import { closeSync, existsSync, openSync, readSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { SECOND, toUnixSeconds } from '../../base/clock.ts'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import { readDuration } from '../../config/settings/field-types.ts'

/** Wrong words: `sternpost: <text>.`, exit 64. */
export function misuse(text: string): ProcessExit {
  return new ProcessExit(EXIT.usage, `sternpost: ${text}.`)
}

/** Milliseconds. */
export function durationFlag(name: string, text: string): number {
  const reading = readDuration(text)
  if (reading.ok) return reading.value
  throw misuse(`${name}: ${reading.problem}`)
}

/** Unix seconds of a time as `instantFlag` takes it. */
export function timeFlag(name: string, text: string, now = Date.now()): string {
  return String(toUnixSeconds(instantFlag(name, text, now)))
}

/**
 * Unix milliseconds of `2h` (so long ago), of Unix seconds, or of an ISO 8601 date, `2026-11-21`, with or without a time
 * of day, `T12:00:00.5`, and a zone, `Z`, `+02:00` or `+0200`; without a zone it is local time.
 */
export function instantFlag(name: string, text: string, now = Date.now()): number {
  if (/^\d{9,11}$/.test(text)) return Number(text) * SECOND // from 1973 on
  const ago = readDuration(text)
  if (ago.ok) return now - ago.value
  const at = readInstant(text)
  if (at !== null) return at
  throw misuse(`${name}: "${text}" is no time; write for example 2h, 2026-11-21T12:00 or 2026-11-21T12:00:00Z`)
}

// Date, then time of day, seconds with a fraction, and zone, also as date(1) writes them. Date.parse takes much else, and guesses what it means.
const INSTANT = /^(\d{4}-\d\d-\d\d)(?:[T ]([01]\d|2[0-3])(:[0-5]\d)(:[0-5]\d(?:[.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?$/i

function readInstant(text: string): number | null {
  const [, date = '', hour = '00', minute = ':00', second = '', zone = ''] = INSTANT.exec(text) ?? []
  const day = Date.parse(date)
  // February 30 would become March 2.
  if (Number.isNaN(day) || !new Date(day).toISOString().startsWith(date)) return null
  const wholeZone = zone.toUpperCase().replace(/(\d\d)(\d\d)$/, '$1:$2')
  const at = Date.parse(`${date}T${hour}${minute}${second.replace(',', '.')}${wholeZone}`)
  return Number.isNaN(at) ? null : at
}

/** A whole number above 0. */
export function countFlag(name: string, text: string): number {
  const count = Number(text)
  if (Number.isSafeInteger(count) && count > 0) return count
  throw misuse(`${name}: "${text}" is no whole number above 0`)
}

/** What a file, or a pipe, holds; 74 for one that cannot be read. */
export function fileFlag(name: string, file: string, mostMebibytes: number): Buffer {
  let content: Buffer | null
  try {
    content = readUpTo(file, mostMebibytes * MEBIBYTE)
  } catch (cause) {
    throw new ProcessExit(EXIT.disk, `sternpost: ${name}: ${errorText(cause)}`, { cause })
  }
  if (content === null) throw misuse(`${name}: ${file} has more than ${mostMebibytes} MiB, the most that can be sent`)
  return content
}

const MEBIBYTE = 1_048_576

/** null: it holds more. A pipe or a device does not say how much it will. */
function readUpTo(file: string, mostBytes: number): Buffer | null {
  const descriptor = openSync(file, 'r')
  try {
    const pieces: Buffer[] = []
    for (let total = 0; total <= mostBytes;) {
      const piece = Buffer.allocUnsafe(MEBIBYTE)
      const length = readSync(descriptor, piece)
      if (length === 0) return Buffer.concat(pieces)
      pieces.push(piece.subarray(0, length))
      total += length
    }
    return null
  } finally {
    closeSync(descriptor)
  }
}

/** Gathers the values of a flag that may be given several times. */
export function collect(value: string, earlier: string[] = []): string[] {
  return [...earlier, value]
}

/** The files of the package, for those that an administrator did not write. */
export const SHIPPED_FOLDER = fileURLToPath(new URL('../../../config', import.meta.url))
export const PRODUCTION_FOLDER = '/etc/sternpost'

/**
 * `--config`, else STERNPOST_CONFIG, else the folder of an installed package (config/README.md "Rules of the files").
 */
export function configurationFolder(flag: string | undefined): string {
  if (flag === '') throw misuse('--config: is empty; name the folder of the configuration files')
  const fromEnvironment = process.env['STERNPOST_CONFIG'] ?? ''
  return flag ?? (fromEnvironment === '' ? PRODUCTION_FOLDER : fromEnvironment)
}

/** The same for verbs that need no server: where nothing is installed, what comes with the program. */
export function installedOrShippedFolder(flag: string | undefined): string {
  const folder = configurationFolder(flag)
  return folder === PRODUCTION_FOLDER && !existsSync(folder) ? SHIPPED_FOLDER : folder
}
