/** What commands do to a database whose server is stopped. The one place to extend when another engine comes. */
export { migrateNow, planMigration, verifyDatabase } from '../sqlite/backup/offline.ts'
export type { MigrationPlan } from '../sqlite/engine/migrate.ts'
export { restoreBackup } from '../sqlite/backup/restore.ts'
export type { RestoreSummary } from '../sqlite/backup/restore.ts'
export { verifyBackup } from '../sqlite/backup/verify-backup.ts'
export type { VerifiedBackup } from '../sqlite/backup/verify-backup.ts'
