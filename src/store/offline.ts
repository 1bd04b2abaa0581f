/**
 * What commands do to a database whose server is stopped. The one place to extend when another engine comes.
 */
export { migrateNow, planMigration, verifyDatabase } from './sqlite/offline.ts'
export type { MigrationPlan } from './sqlite/migrate.ts'
export { restoreBackup } from './sqlite/restore.ts'
export type { RestoreSummary } from './sqlite/restore.ts'
export { verifyBackup } from './sqlite/verify-backup.ts'
export type { VerifiedBackup } from './sqlite/verify-backup.ts'
