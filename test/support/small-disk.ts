/**
 * A disk of a few MiB in memory (tmpfs), which a test fills and frees. Mounting one takes root.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export const MIB = 1_048_576

export interface SmallDisk {
  folder: string
  /** Only so many bytes stay free. */
  fill(leftBytes: number): void
  free(): void
  remove(): void
}

/** undefined: this machine does not let us mount. */
export function mountSmallDisk(sizeBytes: number): SmallDisk | undefined {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-disk-'))
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${sizeBytes}`, 'tmpfs', folder], { stdio: 'ignore' })
  } catch {
    // Not root, no mount command, or a container that may not.
    rmdirSync(folder)
    return undefined
  }
  const ballast = join(folder, 'ballast')
  return {
    folder,
    fill(leftBytes) {
      const { bavail, bsize } = statfsSync(folder)
      const bytes = bavail * bsize - leftBytes
      if (bytes > 0) writeBallast(ballast, bytes)
    },
    free: () => rmSync(ballast, { force: true }),
    remove() {
      execFileSync('umount', ['-l', folder])
      rmdirSync(folder)
    },
  }
}

/** The server writes meanwhile: what is left may be less than there was. */
function writeBallast(file: string, bytes: number): void {
  try {
    writeFileSync(file, Buffer.alloc(bytes), { flag: 'a' })
  } catch (thrown) {
    if (!(thrown instanceof Error) || !('code' in thrown) || thrown.code !== 'ENOSPC') throw thrown
  }
}
