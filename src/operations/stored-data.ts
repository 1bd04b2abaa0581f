/** What administrators ask about the data, made of the store and its backups. */
import { realpathSync } from 'node:fs'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { toUnixSeconds, type Clock } from '../base/clock.ts'
import { errorText, ServiceError } from '../base/errors.ts'
import type { BackupsReport, DataAdministration, StorageReport } from '../http/exchange/operator-features.ts'
import { eraseRecipient, exportRecipient } from '../messages/lookup/recipient-data.ts'
import type { Backups } from '../store/open/backups.ts'
import type { StorageFigures } from '../store/records/retention-records.ts'
import type { Store } from '../store/store.ts'

interface DataAdministrationParts {
  store: Store
  clock: Clock
  backups: Pick<Backups, 'write' | 'list' | 'progress'>
  /** Where a backup may be written, with what is below. */
  backupFolders: () => readonly string[]
  budget: () => number | null
  freeBytes: () => number
  /** Of the disk that the database is on; null: on another server's. */
  minFree: number | null
  onEvents: () => void
}

export function createDataAdministration(parts: DataAdministrationParts): DataAdministration {
  const { store, backups } = parts
  let last: BackupsReport['last'] = null
  return {
    async storage() {
      const figures = await store.storageFigures()
      const [budget, freeBytes, minFree] = [parts.budget(), parts.freeBytes(), parts.minFree]
      const left = minFree === null ? null : daysLeft(figures, budget, freeBytes - minFree)
      return { ...figures, freeBytes, budget, daysLeft: left }
    },
    backups: () => ({ running: backups.progress(), last, backups: backups.list() }),
    startBackup(folder) {
      if (backups.progress() !== null) throw new ServiceError('conflict', 'a backup is being written already')
      if (folder !== null) requireBackupFolder(folder, parts.backupFolders())
      last = null
      backups.write(folder).then(
        ({ manifest, milliseconds, ...backup }) => {
          last = { backup, milliseconds, messages: manifest.counts?.messages ?? null }
        },
        (thrown: unknown) => {
          last = { problem: errorText(thrown) }
        },
      )
    },
    exportRecipient: (address, after) => exportRecipient(parts, address, after),
    async eraseRecipient(address) {
      const erased = await eraseRecipient(parts, address)
      if (erased.canceled > 0) parts.onEvents()
      return erased
    },
    async unmatchedReports(limit) {
      const found = await store.listUnmatchedReports(limit)
      return found.map(({ at, remoteAddress, bytes, ...report }) => {
        const source = Buffer.from(bytes).toString()
        return { at: toUnixSeconds(at), ...report, remote_address: remoteAddress, source }
      })
    },
  }
}

function requireBackupFolder(folder: string, allowed: readonly string[]): void {
  if (!isAbsolute(folder)) throw new ServiceError('invalid_request', 'to: expected an absolute path')
  const place = realPath(folder)
  if (allowed.some((each) => `${place}/`.startsWith(`${realPath(each)}/`))) return
  const fix = 'add it to backup.folders of sternpost.yaml, then: sternpost reload'
  throw new ServiceError('invalid_request', `to: ${folder} is neither in backup.dir nor in backup.folders; ${fix}`)
}

/** With links resolved, as far as it is there. */
function realPath(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    const folder = dirname(path)
    return folder === path ? path : join(realPath(folder), basename(path))
  }
}

/** Until the budget is used up, or else the disk. */
function daysLeft(figures: StorageFigures, budget: number | null, freeOnDisk: number): StorageReport['daysLeft'] {
  const { growthPerDay, usedBytes } = figures
  if (growthPerDay === null || growthPerDay <= 0) return null
  const ofDisk = Math.max(0, freeOnDisk)
  const room = budget === null ? ofDisk : Math.min(ofDisk, Math.max(0, budget - usedBytes))
  return room / growthPerDay
}
