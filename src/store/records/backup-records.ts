/** Backups: what stands in one, and how far one is that is being written. */

export interface BackupFile {
  bytes: number
  sha256: string
}

/** The first file of an archive, as JSON. */
export interface BackupManifest {
  /** Of this manifest and of what is around it. */
  format: 1
  /** Of the program that wrote it. */
  version: string
  schema: number
  /** ISO 8601: everything that was answered before this moment is in it. */
  mark: string
  /** Name of the host. */
  host: string
  /** null: the data is in PostgreSQL, whose own tools copy it; the schema is 0. */
  counts: BackupCounts | null
  /** By name in the archive. */
  files: Record<string, BackupFile>
  /** Private keys of ACME accounts and certificates, sealed with the master key; left out in archives of old. */
  sealed_acme_keys?: number
  /** What an administrator has to keep elsewhere. */
  left_out: string[]
}

export interface BackupCounts {
  messages: number
  /** Of them, those that are not final. */
  undelivered: number
  domains: number
  api_keys: number
  webhook_endpoints: number
  suppressions: number
  idempotency_keys: number
}

export interface StoredBackup {
  path: string
  bytes: number
  /** Unix milliseconds. */
  madeAt: number
  schema: number
  /** As its manifest marks it; null: it does not say. */
  sealedAcmeKeys: number | null
}

export type BackupStage = 'copying' | 'checking' | 'packing'

export interface BackupProgress {
  stage: BackupStage
  doneBytes: number
  /** An estimate. */
  totalBytes: number
}

export interface WrittenBackup extends StoredBackup {
  manifest: BackupManifest
  milliseconds: number
}

/** Why no backup was written, as a sentence. */
export class BackupError extends Error {
  override readonly name = 'BackupError'
}
