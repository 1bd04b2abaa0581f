/**
 * Backups of a running database (systemd/README.md "Backup"): one at a time, in a thread of its own. Only after one
 * that succeeded the oldest beyond `keep` go. Rejects with BackupError, with a sentence, when none was written.
 */
import { rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { SECOND, toUnixSeconds, type Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { Metrics } from '../../base/metrics.ts'
import { within } from '../../base/within.ts'
import { CONFIGURATION, DATABASE, listArchives } from '../backup-archive.ts'
import {
  BackupError,
  type BackupProgress,
  type BackupStage,
  type StoredBackup,
  type WrittenBackup,
} from '../records/backup-records.ts'
import type { BackupThreadData, BackupThreadMessage } from '../sqlite/backup/backup-thread.ts'

interface BackupsOptions {
  /** null: the data is elsewhere; only the configuration is copied. */
  databaseFile: string | null
  /** null: there are no files. */
  configurationFolder: string | null
  /** `keptFreeBytes`: what stays free on the disk of the database while one is written. */
  settings: () => { dir: string; keep: number; keptFreeBytes: number }
  clock: Clock
  logger: Logger
  metrics: Pick<Metrics, 'backupLastSuccess'>
}

export type Backups = ReturnType<typeof createBackups>

const WORK_FOLDER = '.backup-unfinished'
/** A thread ends only between its calls of SQLite and tar, which may take minutes. */
const LONGEST_STOP = 5 * SECOND

interface Running {
  stage: BackupStage
  totalBytes: number
  workFolder: string
  worker: Worker
}

export function createBackups(options: BackupsOptions) {
  const { settings, clock, logger, metrics } = options
  let running: Running | undefined
  let isStopping = false
  noteLast()

  function noteLast(): void {
    const [newest] = listOrNone()
    if (newest !== undefined) metrics.backupLastSuccess.set(toUnixSeconds(newest.madeAt))
  }

  /** A folder that cannot be read is told when a backup is written into it. */
  function listOrNone(): StoredBackup[] {
    try {
      return listArchives(settings().dir, clock.now())
    } catch (thrown) {
      logger.warn({ folder: settings().dir, error: errorText(thrown) }, 'the folder of the backups cannot be read')
      return []
    }
  }

  async function write(folder: string | null): Promise<WrittenBackup> {
    if (running !== undefined) throw new BackupError('a backup is being written already')
    const { dir, keep, keptFreeBytes } = settings()
    const target = folder ?? dir
    const startedAt = performance.now()
    const { databaseFile, configurationFolder } = options
    const workFolder = join(target, WORK_FOLDER)
    const data = { databaseFile, configurationFolder, folder: target, workFolder, keptFreeBytes, now: clock.now() }
    const noteStage = (started: Running): void => {
      running = started
    }
    const written = await runThread(data, noteStage).finally(() => {
      running = undefined
    })
    const { manifest, path, bytes } = written
    const { mark, schema, counts } = manifest
    const milliseconds = Math.round(performance.now() - startedAt)
    logger.info({ file: path, bytes, schema, messages: counts?.messages, ms: milliseconds }, 'backup written')
    const missed = manifest.left_out.filter((text) => text.startsWith(`${CONFIGURATION}/`))
    if (missed.length > 0) logger.warn({ file: path, missed }, 'files of the configuration are not in the backup')
    if (target === dir) {
      metrics.backupLastSuccess.set(toUnixSeconds(Date.parse(mark)))
      const others = listOrNone().filter((each) => each.path !== path)
      for (const old of others.slice(keep - 1)) removeBackup(old.path, logger)
    }
    const sealedAcmeKeys = manifest.sealed_acme_keys ?? null
    return { ...written, milliseconds, schema, madeAt: Date.parse(mark), sealedAcmeKeys }
  }

  return {
    /** Into the configured folder, or into another one (absolute), whose files are nobody's to remove. */
    async write(folder: string | null): Promise<WrittenBackup> {
      try {
        return await write(folder)
      } catch (thrown) {
        // What a stop has given up is no trouble.
        const error = isStopping ? 'the server stops' : errorText(thrown)
        logger[isStopping ? 'warn' : 'error']({ folder: folder ?? settings().dir, error }, 'no backup was written')
        throw thrown
      }
    },
    /** Those of the configured folder, newest first. */
    list: listOrNone,
    /** null: none is being written. */
    progress: (): BackupProgress | null => (running === undefined ? null : progressOf(running)),
    /** The one under way ends without an archive. */
    async stop(): Promise<void> {
      isStopping = true
      const stopped = running
      if (stopped === undefined) return
      const ended = await within(stopped.worker.terminate(), LONGEST_STOP)
      if (ended === undefined) logger.warn({ stage: stopped.stage }, 'a backup under way is not waited for any longer')
      rmSync(stopped.workFolder, { recursive: true, force: true })
    },
  }
}

function progressOf({ stage, totalBytes, workFolder }: Running): BackupProgress {
  const name = stage === 'packing' ? 'archive' : DATABASE
  const doneBytes = stage === 'checking' ? 0 : sizeOf(join(workFolder, name))
  return { stage, totalBytes, doneBytes: Math.min(doneBytes, totalBytes) }
}

function removeBackup(path: string, logger: Logger): void {
  try {
    rmSync(path, { force: true })
    logger.info({ file: path }, 'old backup removed')
  } catch (thrown) {
    logger.warn({ file: path, error: errorText(thrown) }, 'an old backup could not be removed')
  }
}

const sizeOf = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0

type Written = Extract<BackupThreadMessage, { kind: 'written' }>

function runThread(workerData: BackupThreadData, onStage: (running: Running) => void): Promise<Written> {
  const entry = new URL('../sqlite/backup/backup-thread.ts', import.meta.url)
  const worker = new Worker(entry, { workerData, name: 'backup', execArgv: [] })
  const { workFolder } = workerData
  onStage({ stage: 'copying', totalBytes: 0, workFolder, worker })
  let ended: Exclude<BackupThreadMessage, { kind: 'stage' }> | undefined
  return new Promise((resolve, reject) => {
    worker.on('message', (message: BackupThreadMessage) => {
      if (message.kind === 'stage') onStage({ ...message, workFolder, worker })
      else ended = message
    })
    worker.once('error', reject)
    // Behind its last message: then it has cleaned up, too.
    worker.once('exit', () => {
      if (ended?.kind === 'written') resolve(ended)
      else reject(new BackupError(ended?.sentence ?? 'the thread of the backup ended before it was written'))
    })
  })
}
