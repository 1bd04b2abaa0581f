/** A folder that cannot be made or written into: why, and what to do. */
import { existsSync } from 'node:fs'
import { errorCode, errorText } from '../../../base/errors.ts'
import { shellWord } from '../../../base/shell-word.ts'

/** A folder that cannot be made on a file system which is read-only is one that is not there, to Node. */
const NOT_OURS = ['EACCES', 'EROFS', 'ENOENT']

/** A file is in the place of the folder, or of one above it: no owner or mount helps. */
export function isBehindFile(thrown: unknown): boolean {
  return ['EEXIST', 'ENOTDIR'].includes(errorCode(thrown))
}

/**
 * The unit of the package lets the service write below its own folders alone, whoever owns another one. null: something
 * else is wrong, such as a full disk.
 */
export function unwritableText(folder: string, thrown: unknown): string | null {
  if (isBehindFile(thrown)) {
    const place = errorCode(thrown) === 'EEXIST' ? 'is a file, not a folder' : 'is below a file, not a folder'
    return `${folder} ${place}. Fix: name another folder, or move the file away`
  }
  if (!NOT_OURS.includes(errorCode(thrown))) return null
  const user = process.getuid?.()
  const place = shellWord(folder)
  const own = existsSync(folder) ? `chown -R ${user} ${place}` : `install -d -o ${user} -m 0700 ${place}`
  if (errorCode(thrown) === 'EACCES') {
    return `user ${user} may not write into ${folder} (${errorText(thrown)}). Fix: ${own}`
  }
  const mount =
    errorCode(thrown) === 'EROFS' ? `where findmnt -T ${place} says "ro", mend that disk (dmesg); else ` : ''
  const allow = `with the package also "ReadWritePaths=-${folder}" below [Service] by: systemctl edit sternpost`
  return `nothing may be written into ${folder} (${errorText(thrown)}). Fix: ${mount}${own}; ${allow}; then restart it`
}
