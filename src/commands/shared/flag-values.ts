/**
 * Values of flags that several verbs take: durations, times, counts, files, the folder of the configuration. Each
 * throws ProcessExit 64 with what to write instead.
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
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

/** Unix seconds of `2h` (so long ago), or of `2026-11-21` or `2026-11-21T12:00` in local time or with a zone. */
export function timeFlag(name: string, text: string, now = Date.now()): string {
  if (/^\d{9,11}$/.test(text)) return text // Unix seconds, from 1973 on
  const ago = readDuration(text)
  if (ago.ok) return String(toUnixSeconds(now - ago.value))
  // A date, and a time of day with or without seconds and zone.
  const [, date, time = 'T00:00'] = /^(\d{4}-\d\d-\d\d)([T ]\d\d:\d\d.*)?$/.exec(text) ?? []
  const at = date === undefined ? Number.NaN : Date.parse(date + time.replace(' ', 'T'))
  if (!Number.isNaN(at)) return String(Math.floor(at / SECOND))
  throw misuse(`${name}: "${text}" is no time; write for example 2h or 2026-11-21T12:00`)
}

/** A whole number above 0. */
export function countFlag(name: string, text: string): number {
  const count = Number(text)
  if (Number.isSafeInteger(count) && count > 0) return count
  throw misuse(`${name}: "${text}" is no whole number above 0`)
}

/** What a file holds; 74 for one that cannot be read. */
export function fileFlag(name: string, file: string, mostMebibytes?: number): Buffer {
  try {
    if (mostMebibytes === undefined || statSync(file).size <= mostMebibytes * MEBIBYTE) return readFileSync(file)
  } catch (cause) {
    throw new ProcessExit(EXIT.disk, `sternpost: ${name}: ${errorText(cause)}`, { cause })
  }
  throw misuse(`${name}: ${file} has more than ${mostMebibytes} MiB, the most that can be sent`)
}

const MEBIBYTE = 1_048_576

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
  const fromEnvironment = process.env['STERNPOST_CONFIG'] ?? ''
  return flag ?? (fromEnvironment === '' ? PRODUCTION_FOLDER : fromEnvironment)
}

/** The same for verbs that need no server: where nothing is installed, what comes with the program. */
export function installedOrShippedFolder(flag: string | undefined): string {
  const folder = configurationFolder(flag)
  return folder === PRODUCTION_FOLDER && !existsSync(folder) ? SHIPPED_FOLDER : folder
}
