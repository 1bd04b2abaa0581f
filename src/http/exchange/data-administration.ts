/**
 * What administrators ask about the data itself: what it is full of, backups, and what is stored about somebody
 * (store/README.md "Data", messages/README.md "Privacy"). Part of `Administration`.
 */

export interface StorageReport {
  /** Bytes of the database file, of it in use, of the write-ahead log, and free on its disk. */
  fileBytes: number
  usedBytes: number
  logBytes: number
  freeBytes: number
  /** Estimated; together what is in use. */
  kinds: { kind: string; bytes: number }[]
  /** Bytes, null: not known yet. */
  growthPerDay: number | null
  /** Until the budget, or the disk but for what has to stay free, is used up; null: it does not grow, or not known. */
  daysLeft: number | null
  budget: number | null
}

export interface BackupFacts {
  path: string
  bytes: number
  /** Unix milliseconds. */
  madeAt: number
  schema: number
}

export interface BackupsReport {
  /** null: none is being written. */
  running: { stage: string; doneBytes: number; totalBytes: number } | null
  /** How the last one that this process began has ended, null: none has. */
  last: { backup: BackupFacts; milliseconds: number; messages: number } | { problem: string } | null
  /** Newest first. */
  backups: BackupFacts[]
}

export interface RecipientPage {
  /** As plain data: message, events and dialogues of each. */
  messages: object[]
  next: string | null
  suppressions: object[]
}

export interface ErasedRecipient {
  messages: number
  canceled: number
  /** Are being sent just now, and were left: once more when they have ended. */
  sending: number
  /** Rows beside messages. */
  others: number
}

export interface DataAdministration {
  storage(): Promise<StorageReport>
  backups(): BackupsReport
  /** Begins one; ServiceError `conflict` while another is being written. null: into the configured folder. */
  startBackup(folder: string | null): void
  /** ServiceError `invalid_request` for what is no address. */
  exportRecipient(address: string, after: string | null): Promise<RecipientPage>
  eraseRecipient(address: string): Promise<ErasedRecipient>
}
