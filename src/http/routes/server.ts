/**
 * For administrators: version, log level, reload, storage, backups, what is stored about somebody, and reports that
 * name none of our messages (config/README.md "Reload", store/README.md "Data", messages/README.md "Privacy",
 * inbound/README.md "Reports"). No log line holds an address that was erased.
 */
import { snakeFields } from '../../api/names.ts'
import * as wire from '../../api/server.ts'
import { MINUTE, SECOND, toUnixSeconds } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type {
  Administration,
  BackupsReport,
  CertificateState,
  ReloadResult,
  StorageReport,
} from '../exchange/operator-features.ts'
import { isOnAdminSocket } from '../exchange/principal.ts'
import { ACCEPTED, okData, okList, success, successList } from '../exchange/answer.ts'
import { param, routesOf, type Note, type Route } from '../exchange/route.ts'

const { get, post } = routesOf('admin')

const DEFAULT_SECONDS = (10 * MINUTE) / SECOND

export function serverRoutes(administration: Administration, note: Note): Route[] {
  return [
    ...processRoutes(administration, note),
    ...storageRoutes(administration, note),
    ...certificateRoutes(administration, note),
    ...recipientRoutes(administration, note),
    unmatchedReportsRoute(administration),
  ]
}

function processRoutes(administration: Administration, note: Note): Route[] {
  return [
    get('/admin/server', {
      summary: 'Which version runs, and since when.',
      ok: okData(wire.runningServerSchema),
      async handler() {
        const { startedAt, ...facts } = administration.server()
        return success({ ...facts, started_at: toUnixSeconds(startedAt) })
      },
    }),
    post('/admin/log-level', {
      summary: 'Logs at another level for a while.',
      body: wire.logLevelSchema,
      ok: okData(wire.raisedLogLevelSchema),
      async handler(request, { level, forSeconds }) {
        const raised = administration.raiseLogLevel(level, (forSeconds ?? DEFAULT_SECONDS) * SECOND)
        note('log level raised', request, { level: raised.level, until: toUnixSeconds(raised.until) })
        return success({ level: raised.level, until: toUnixSeconds(raised.until) })
      },
    }),
    post('/admin/reload', {
      summary: 'Takes the configuration files over, or says what would change.',
      body: wire.reloadSchema,
      ok: okData(wire.reloadResultSchema),
      async handler(request, { dryRun }) {
        const result = await administration.reload(dryRun ?? false)
        const { isApplied, revision, lines } = result
        if (isApplied) note('configuration reloaded', request, { revision, changes: lines })
        return success(reloadAnswer(result))
      },
    }),
  ]
}

function storageRoutes(administration: Administration, note: Note): Route[] {
  return [
    get('/admin/storage', {
      summary: 'What the database is full of, and how long that can go on.',
      ok: okData(wire.storageSchema),
      handler: async () => success(storageAnswer(await administration.storage())),
    }),
    get('/admin/backups', {
      summary: 'The backups there are, and how far one is that is being written.',
      ok: okData(wire.backupsSchema),
      handler: async () => success(backupsAnswer(administration.backups())),
    }),
    post('/admin/backups', {
      summary: 'Begins to write a backup.',
      body: wire.beginBackupSchema,
      ok: okData(wire.startedBackupSchema, ACCEPTED),
      errors: ['conflict', 'forbidden'],
      async handler(request, { to }) {
        if (to !== null && !isOnAdminSocket(request.principal)) {
          throw new ServiceError('forbidden', 'to: only the admin socket may name a folder')
        }
        administration.startBackup(to)
        note('backup begun', request, { folder: to })
        return success({ started: true }, ACCEPTED)
      },
    }),
  ]
}

function certificateRoutes(administration: Administration, note: Note): Route[] {
  return [
    get('/admin/certificates', {
      summary: 'The certificates of our doors: until when, who renews them, and what is wrong.',
      ok: okData(wire.certificatesSchema),
      async handler() {
        return success({ certificates: (await administration.certificates()).map(certificateAnswer) })
      },
    }),
    post('/admin/certificates/:name/renew', {
      summary: 'Begins to renew a certificate before its time.',
      body: wire.renewCertificateSchema,
      ok: okData(wire.renewingCertificateSchema, ACCEPTED),
      errors: ['conflict'],
      async handler(request, { newKey }) {
        const name = param(request, 'name')
        await administration.renewCertificate(name, newKey ?? false)
        note('certificate renewal begun', request, { name, new_key: newKey ?? false })
        return success({ name, renewing: true }, ACCEPTED)
      },
    }),
  ]
}

function recipientRoutes(administration: Administration, note: Note): Route[] {
  return [
    get('/admin/recipients/:address', {
      summary: 'What is stored about an address.',
      query: wire.exportRecipientSchema,
      ok: okData(wire.recipientDataSchema),
      async handler(request, { after }) {
        const { next, ...page } = await administration.exportRecipient(param(request, 'address'), after)
        return success({ ...page, next_cursor: next })
      },
    }),
    post('/admin/recipients/:address/erase', {
      summary: 'Replaces an address wherever it is stored; nothing is sent to it any more.',
      ok: okData(wire.erasedRecipientSchema),
      async handler(request) {
        const erased = await administration.eraseRecipient(param(request, 'address'))
        note('recipient erased', request, erased)
        return success(erased)
      },
    }),
  ]
}

function unmatchedReportsRoute(administration: Administration): Route {
  return get('/admin/unmatched-reports', {
    summary: 'The newest bounces and complaints that name none of our messages.',
    query: wire.findUnmatchedReportsSchema,
    ok: okList(wire.unmatchedReportSchema),
    async handler(_, { limit }) {
      return successList(await administration.unmatchedReports(limit))
    },
  })
}

function reloadAnswer({ isApplied: applied, milliseconds, mistakes, ...result }: ReloadResult): wire.ReloadResultJson {
  return { ...result, applied, duration_ms: Math.round(milliseconds), mistakes: [...mistakes] }
}

function storageAnswer({ freeBytes, growthPerDay, daysLeft, budget, ...report }: StorageReport): wire.StorageJson {
  return {
    ...snakeFields(report),
    free_bytes: Math.round(freeBytes),
    budget_bytes: budget,
    growth_per_day: growthPerDay === null ? null : Math.round(growthPerDay),
    days_left: daysLeft === null ? null : Math.floor(daysLeft),
  }
}

function backupsAnswer({ running, last, backups }: BackupsReport): wire.BackupsJson {
  return {
    running: running === null ? null : snakeFields(running),
    last: last === null ? null : lastBackup(last),
    backups: backups.map(backupAnswer),
  }
}

function lastBackup(last: NonNullable<BackupsReport['last']>): wire.BackupsJson['last'] {
  if ('problem' in last) return { problem: last.problem, backup: null, ms: null, messages: null }
  return { problem: null, backup: backupAnswer(last.backup), ms: last.milliseconds, messages: last.messages }
}

function backupAnswer({ madeAt, ...facts }: BackupsReport['backups'][number]): wire.BackupJson {
  const { path, bytes, schema, sealed_acme_keys: keys } = snakeFields(facts)
  return { path, bytes, made_at: toUnixSeconds(madeAt), schema, sealed_acme_keys: keys }
}

function certificateAnswer(state: CertificateState): wire.CertificateJson {
  const { endsAt, renewsAt, nextTryAt, ...facts } = state
  const seconds = (at: number | null): number | null => (at === null ? null : toUnixSeconds(at))
  return {
    ...snakeFields(facts),
    ends_at: seconds(endsAt),
    renews_at: seconds(renewsAt),
    next_try_at: seconds(nextTryAt),
  }
}
