/**
 * What several verbs share: where the configuration is, and flags that may be repeated.
 */
import { fileURLToPath } from 'node:url'
import { loadConfiguration } from '../config/load-configuration.ts'
import type { ServerSettings } from '../config/server-settings.ts'

/** The files of the package, for those that an administrator did not write. */
export const SHIPPED_FOLDER = fileURLToPath(new URL('../../config', import.meta.url))

const PRODUCTION_FOLDER = '/etc/posthorn'

/** `--config`, else POSTHORN_CONFIG, else the folder of an installed package (operations.md 3). */
export function configurationFolder(flag: string | undefined): string {
  return flag ?? process.env['POSTHORN_CONFIG'] ?? PRODUCTION_FOLDER
}

/** For verbs that talk to a running server: its secrets are not needed, nor may everybody read them. */
export function readSettings(folder: string): ServerSettings {
  return loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER, neededSecrets: 'none' }).server
}

/** Gathers the values of a flag that may be given several times. */
export function collect(value: string, earlier: string[] = []): string[] {
  return [...earlier, value]
}
