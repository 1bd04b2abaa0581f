/**
 * Where the server of a configuration folder listens for its administrator: for verbs that talk to a running server,
 * which must work, and at once, whatever was written into the other files since it started.
 *
 * Throws ConfigurationError with the mistakes of sternpost.yaml and its drop-ins.
 */
import { ConfigurationError } from '../base/errors.ts'
import { mistakesOf } from './source/explain-mistake.ts'
import { readFolder } from './source/read-folder.ts'
import { serverSchema } from './settings/server-settings.ts'
import { valueOf } from './source/source-tree.ts'

export function readAdminSocket(folder: string, shippedFolder: string): string {
  const { trees, mistakes } = readFolder(folder, shippedFolder, ['sternpost'])
  if (trees.sternpost === undefined) throw new ConfigurationError(mistakes)
  const result = serverSchema.safeParse(valueOf(trees.sternpost), { reportInput: true })
  if (!result.success) throw new ConfigurationError(mistakesOf(result.error.issues, trees.sternpost))
  return result.data.listen.admin_socket
}
