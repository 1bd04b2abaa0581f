/**
 * Brings the schema of a database to the version this program knows.
 *
 * Each migration runs in one transaction together with its version number (`pragma user_version`), so a kill between
 * two of them leaves a database that the next start continues from. A database of a newer program is refused, naming
 * both versions, before anything is written.
 */
import { readFileSync } from 'node:fs'
import type { Database } from 'better-sqlite3'
import { EXIT, ProcessExit } from '../../base/errors.ts'

/** In order; the position + 1 is the schema version. A migration is never edited after its release. */
const MIGRATIONS = [
  '0001-initial.sql', '0002-domain-keys.sql', '0003-contract.sql', '0004-reports.sql', '0005-engagement.sql',
  '0006-webhook-management.sql', '0007-queue.sql', '0008-dedicated-ips.sql', '0009-outbound-tls.sql',
] as const

/** The schema this program writes. */
export const SCHEMA_VERSION = MIGRATIONS.length

export function migrate(database: Database): void {
  const found = schemaVersion(database)
  if (found > SCHEMA_VERSION) {
    throw new ProcessExit(
      EXIT.configuration,
      `${database.name} has schema version ${found}, this program knows versions up to ${SCHEMA_VERSION}: ` +
        'install the newer Posthorn that wrote it',
    )
  }
  for (let version = found + 1; version <= SCHEMA_VERSION; version++) {
    const name = MIGRATIONS[version - 1]
    if (name === undefined) break
    const statements = readFileSync(new URL(`./migrations/${name}`, import.meta.url), 'utf8')
    const apply = database.transaction(() => {
      database.exec(statements)
      database.pragma(`user_version = ${version}`)
    })
    apply.immediate()
  }
}

export function schemaVersion(database: Database): number {
  return Number(database.pragma('user_version', { simple: true }))
}
