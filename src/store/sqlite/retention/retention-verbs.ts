/** The verbs of retention: the part of the table in `verbs.ts` that is about it. */
import type { Database } from 'better-sqlite3'
import { createEraseRecipient } from './erase-recipient.ts'
import { createForgetEvents } from './event-removal.ts'
import { createForgetContents, createKeptLinks, createOverdueContents } from './forget-contents.ts'
import { createForgetMessages } from './forget-messages.ts'
import { createForgetLinks, createForgetTraces, createForgetTranscripts } from './forget-parts.ts'
import { createDatabaseSize, createGiveBackPages } from './pages.ts'
import { createNoteDatabaseSize, createStorageFigures } from './storage-figures.ts'

export function createRetentionWriteVerbs(writer: Database) {
  return {
    forgetContents: createForgetContents(writer),
    forgetMessages: createForgetMessages(writer),
    forgetEvents: createForgetEvents(writer),
    forgetTranscripts: createForgetTranscripts(writer),
    forgetLinks: createForgetLinks(writer),
    forgetTraces: createForgetTraces(writer),
    giveBackPages: createGiveBackPages(writer),
    noteDatabaseSize: createNoteDatabaseSize(writer),
    eraseSomeOfRecipient: createEraseRecipient(writer),
  }
}

export function createRetentionReadVerbs(reader: Database) {
  return {
    overdueContents: createOverdueContents(reader),
    keptLinks: createKeptLinks(reader),
    databaseSize: createDatabaseSize(reader),
    storageFigures: createStorageFigures(reader),
  }
}
