/**
 * `sternpost restore --as-of`: PostgreSQL's own tools have put a copy of the database in place, and this machine has not
 * worked with that before, so that its start would not know an older copy (store/README.md "An older copy"). Its mail is
 * held. Throws ProcessExit as a start that cannot open the database, and 78 for one that no Sternpost has worked with.
 */
import { snakeFields } from '../../api/names.ts'
import { toUnixSeconds } from '../../base/clock.ts'
import type { ServerSettings } from '../../config/settings/server-settings.ts'
import { holdMailOfCopy } from '../../store/open/older-copy.ts'
import { postgresLocationFor } from '../../store/store-location.ts'
import { heldMailCommands } from '../shared/command-text.ts'
import { instantFlag, misuse } from '../shared/flag-values.ts'
import { printNote, printResult, type OutputFlags } from '../shared/print.ts'
import { localTime } from '../shared/text.ts'
import { requiredUrl } from './move.ts'

export function holdCopy(asOf: string, server: ServerSettings, flags: OutputFlags & { config?: string }): void {
  if (server.storage.engine !== 'postgres') throw misuse('--as-of: the data is in SQLite; name the file of the backup')
  const now = Date.now()
  const copiedAt = instantFlag('--as-of', asOf, now)
  if (copiedAt > now) throw misuse('--as-of: lies in the future; write when pg_dump began, or recovery_target_time')
  const location = postgresLocationFor(server, requiredUrl(server.storage.url))
  const summary = holdMailOfCopy(location, copiedAt, now)
  const document = { ...snakeFields(summary), mark: toUnixSeconds(copiedAt) }
  const made = localTime(toUnixSeconds(copiedAt))
  printResult(
    flags,
    document,
    () => `The database is taken for a copy of ${made}: ${summary.held} messages are held.\n`,
  )
  if (summary.held === 0) return
  printNote(flags, 'They may have been sent since. Start the server, then decide:')
  const acceptedBefore = new Date(now).toISOString()
  for (const line of heldMailCommands(flags, { ...summary, acceptedBefore })) printNote(flags, line)
}
