/** How the main thread calls the verbs of retention. */
import type { Store } from '../store.ts'
import type { Call } from './verbs.ts'
import type { createRetentionReadVerbs, createRetentionWriteVerbs } from './retention/retention-verbs.ts'

type RetentionCalls = Pick<
  Store,
  keyof ReturnType<typeof createRetentionWriteVerbs> | keyof ReturnType<typeof createRetentionReadVerbs>
>

export function createRetentionCalls(call: Call): RetentionCalls {
  return {
    overdueContents: (request) => call('overdueContents', request),
    forgetContents: (request) => call('forgetContents', request),
    keptLinks: (contentId) => call('keptLinks', contentId),
    forgetMessages: (request) => call('forgetMessages', request),
    forgetEvents: (request) => call('forgetEvents', request),
    forgetTranscripts: (request) => call('forgetTranscripts', request),
    forgetLinks: (request) => call('forgetLinks', request),
    forgetTraces: (request) => call('forgetTraces', request),
    giveBackPages: (keptBytes, limit) => call('giveBackPages', { keptBytes, limit }),
    noteDatabaseSize: (day, bytes) => call('noteDatabaseSize', { day, bytes }),
    eraseSomeOfRecipient: (request) => call('eraseSomeOfRecipient', request),
    databaseSize: () => call('databaseSize'),
    storageFigures: () => call('storageFigures'),
  }
}
