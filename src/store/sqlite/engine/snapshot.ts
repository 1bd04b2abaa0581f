/**
 * The copy of a database before a migration, `pre-migration-<from>-<to>.db`, the last two kept (store/README.md
 * "Migrations"). Its name appears when it is whole and on the disk. Throws ProcessExit 74, with the bytes that are
 * needed, when there is no space for it.
 */
import {
  chownSync,
  closeSync,
  fsyncSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import type { Database } from 'better-sqlite3'
import { EXIT, ProcessExit } from '../../../base/errors.ts'

export interface Snapshot {
  path: string
  /** Schema of the copy. */
  from: number
  /** Schema that it was made for. */
  to: number
  /** Unix milliseconds. */
  madeAt: number
}

const KEPT = 2
/** Left for the server beside it. */
const SPARE_BYTES = 32 * 1_024 * 1_024
// The two schema versions.
const NAME = /^pre-migration-(\d+)-(\d+)\.db$/

export function makeSnapshot(database: Database, folder: string, from: number, to: number): Snapshot {
  requireSpace(database, folder, from, to)
  const path = join(folder, `pre-migration-${from}-${to}.db`)
  const unfinished = `${path}.unfinished`
  rmSync(unfinished, { force: true })
  database.prepare('vacuum into ?').run(unfinished)
  settle(unfinished, path)
  for (const { path: old } of listSnapshots(folder).slice(KEPT)) rmSync(old, { force: true })
  return { path, from, to, madeAt: statSync(path).mtimeMs }
}

/** Throws ProcessExit 74 where a snapshot has no space. */
export function requireSpace(database: Database, folder: string, from: number, to: number): void {
  const needed = contentBytes(database) + SPARE_BYTES
  const free = freeBytesIn(folder)
  if (free < needed) {
    throw new ProcessExit(
      EXIT.disk,
      `no space for the snapshot before the migration from schema ${from} to ${to}: ${needed} bytes are needed in ` +
        `${folder}, ${free} are free; nothing was changed`,
    )
  }
}

/** By its name; null: it is none. */
export function snapshotSchemas(file: string): Pick<Snapshot, 'from' | 'to'> | null {
  const [, from, to] = NAME.exec(basename(file)) ?? []
  return from === undefined || to === undefined ? null : { from: Number(from), to: Number(to) }
}

/** Newest first. */
export function listSnapshots(folder: string): Snapshot[] {
  return readdirSync(folder)
    .flatMap((name): Snapshot[] => {
      const schemas = snapshotSchemas(name)
      const path = join(folder, name)
      return schemas === null ? [] : [{ path, ...schemas, madeAt: statSync(path).mtimeMs }]
    })
    .sort((left, right) => right.madeAt - left.madeAt)
}

/** Bytes of a copy without free pages. */
export function contentBytes(database: Database): number {
  const [pages, free, pageBytes] = ['page_count', 'freelist_count', 'page_size'].map((name) =>
    Number(database.pragma(name, { simple: true })),
  )
  return ((pages ?? 0) - (free ?? 0)) * (pageBytes ?? 0)
}

export function freeBytesIn(folder: string): number {
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize
}

/** Gives a finished file its name, on the disk, and to whom the folder belongs: an administrator may be another. */
export function settle(unfinished: string, path: string): void {
  const folder = join(path, '..')
  ownAs(unfinished, folder)
  flush(unfinished)
  renameSync(unfinished, path)
  flush(folder)
}

/** What is on its way to the disk has arrived. */
export function flush(path: string): void {
  const file = openSync(path, 'r')
  try {
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}

/** A file that root makes is for whoever the folder belongs to. */
export function ownAs(path: string, folder: string): void {
  if (process.getuid?.() !== 0) return
  const { uid, gid } = statSync(folder)
  chownSync(path, uid, gid)
}
