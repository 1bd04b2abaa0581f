/** Where the configuration is. */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** The files of the package, for those that an administrator did not write. */
export const SHIPPED_FOLDER = fileURLToPath(new URL('../../../config', import.meta.url))

const PRODUCTION_FOLDER = '/etc/sternpost'

/**
 * `--config`, else STERNPOST_CONFIG, else the folder of an installed package (config/README.md "Rules of the files").
 */
export function configurationFolder(flag: string | undefined): string {
  const fromEnvironment = process.env['STERNPOST_CONFIG'] ?? ''
  return flag ?? (fromEnvironment === '' ? PRODUCTION_FOLDER : fromEnvironment)
}

/** The same for verbs that need no server: where nothing is installed, what comes with the program. */
export function installedOrShippedFolder(flag: string | undefined): string {
  const folder = configurationFolder(flag)
  return folder === PRODUCTION_FOLDER && !existsSync(folder) ? SHIPPED_FOLDER : folder
}
