/**
 * The routes about the data itself: storage, backups, what is stored about somebody (store/README.md "Data",
 * messages/README.md "Privacy"). For administrators, as those of `administration.ts`. Every change leaves a log line;
 * an address that was erased does not stand in it.
 */
import { z } from 'zod'
import { toUnixSeconds } from '../../base/clock.ts'
import type { Administration } from '../exchange/administration.ts'
import type { BackupFacts, BackupsReport, StorageReport } from '../exchange/data-administration.ts'
import { noFieldsSchema } from '../requests/domain.ts'
import { optionalText } from '../requests/optional.ts'
import {
  backupsSchema,
  erasedRecipientSchema,
  recipientDataSchema,
  startedBackupSchema,
  storageSchema,
} from '../responses/data.ts'
import { dataSchema, route, routeWithoutBody, routeWithQuery, success } from '../exchange/route.ts'
import type { ApiRequest, Route } from '../exchange/route.ts'

const OK = 200
const ACCEPTED = 202

/** Writes who did what. */
type Note = (what: string, request: ApiRequest, facts: object) => void

export function dataRoutes(administration: Administration, note: Note): Route[] {
  return [...storageRoutes(administration, note), ...recipientRoutes(administration, note)]
}

function storageRoutes(administration: Administration, note: Note): Route[] {
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/admin/storage',
      summary: 'What the database is full of, and how long that can go on.',
      scope: 'admin',
      body: null,
      ok: { status: OK, schema: dataSchema(storageSchema) },
      errors: [],
      handler: async () => success(OK, storageAnswer(await administration.storage())),
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/admin/backups',
      summary: 'The backups there are, and how far one is that is being written.',
      scope: 'admin',
      body: null,
      ok: { status: OK, schema: dataSchema(backupsSchema) },
      errors: [],
      handler: async () => success(OK, backupsAnswer(administration.backups())),
    }),
    route({
      method: 'POST',
      path: '/admin/backups',
      summary: 'Begins to write a backup.',
      scope: 'admin',
      body: z.object({ to: optionalText() }),
      ok: { status: ACCEPTED, schema: dataSchema(startedBackupSchema) },
      errors: ['conflict'],
      async handler(request, { to }) {
        administration.startBackup(to ?? null)
        note('backup begun', request, { folder: to ?? null })
        return success(ACCEPTED, { started: true })
      },
    }),
  ]
}

function recipientRoutes(administration: Administration, note: Note): Route[] {
  return [
    routeWithQuery({
      method: 'GET',
      path: '/admin/recipients/:address',
      summary: 'What is stored about an address.',
      scope: 'admin',
      query: z.object({ after: optionalText() }),
      ok: { status: OK, schema: dataSchema(recipientDataSchema) },
      errors: [],
      async handler({ params }, { after }) {
        const { next, ...page } = await administration.exportRecipient(params['address'] ?? '', after ?? null)
        return success(OK, { ...page, next_cursor: next })
      },
    }),
    route({
      method: 'POST',
      path: '/admin/recipients/:address/erase',
      summary: 'Replaces an address wherever it is stored; nothing is sent to it any more.',
      scope: 'admin',
      body: noFieldsSchema,
      ok: { status: OK, schema: dataSchema(erasedRecipientSchema) },
      errors: [],
      async handler(request) {
        const erased = await administration.eraseRecipient(request.params['address'] ?? '')
        note('recipient erased', request, erased)
        return success(OK, erased)
      },
    }),
  ]
}

function storageAnswer(report: StorageReport): z.infer<typeof storageSchema> {
  const { growthPerDay, daysLeft } = report
  return {
    file_bytes: report.fileBytes,
    used_bytes: report.usedBytes,
    log_bytes: report.logBytes,
    free_bytes: Math.round(report.freeBytes),
    kinds: report.kinds,
    budget_bytes: report.budget,
    growth_per_day: growthPerDay === null ? null : Math.round(growthPerDay),
    days_left: daysLeft === null ? null : Math.floor(daysLeft),
  }
}

function backupsAnswer({ running, last, backups }: BackupsReport): z.infer<typeof backupsSchema> {
  return {
    running:
      running === null
        ? null
        : { stage: running.stage, done_bytes: running.doneBytes, total_bytes: running.totalBytes },
    last: last === null ? null : lastAnswer(last),
    backups: backups.map(fileAnswer),
  }
}

function lastAnswer(last: NonNullable<BackupsReport['last']>): NonNullable<z.infer<typeof backupsSchema>['last']> {
  if ('problem' in last) return { problem: last.problem, backup: null, ms: null, messages: null }
  return { problem: null, backup: fileAnswer(last.backup), ms: last.milliseconds, messages: last.messages }
}

function fileAnswer({ path, bytes, madeAt, schema }: BackupFacts) {
  return { path, bytes, made_at: toUnixSeconds(madeAt), schema }
}
