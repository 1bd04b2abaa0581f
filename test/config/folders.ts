/**
 * Configuration folders for tests: the shipped one, the fixtures, and written ones with a master key.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { ConfigurationError, type Mistake } from '../../src/base/errors.ts'
import { loadConfiguration, type Configuration, type LoadOptions } from '../../src/config/load-configuration.ts'

export const SHIPPED = fileURLToPath(new URL('../../config', import.meta.url))
export const FIXTURES = fileURLToPath(new URL('../fixtures/config', import.meta.url))
export const MASTER_KEY = Buffer.alloc(32, 7)

/** What a folder needs beside its own text to be valid: a key, no TLS door, and addresses that may be private. */
export function overrides(t: Test): Record<string, unknown> {
  const file = join(t.testdir({}), 'master.key')
  writeFileSync(file, `${MASTER_KEY.toString('base64')}\n`, { mode: 0o600 })
  return {
    'secrets.master_key': { file },
    'listen.http': [],
    'listen.submission': [],
    'delivery.allow_private_addresses': true,
  }
}

export function load(options: Partial<LoadOptions> & { folder: string }): Configuration {
  return loadConfiguration({ shippedFolder: SHIPPED, offline: true, ...options })
}

/** Every mistake of a folder, warnings too. */
export function mistakesIn(options: Partial<LoadOptions> & { folder: string }): readonly Mistake[] {
  try {
    return load(options).warnings
  } catch (thrown) {
    if (thrown instanceof ConfigurationError) return thrown.mistakes
    throw thrown
  }
}

/** Writes files into a folder of the test; what is not given falls back to the shipped files. */
export function folderWith(t: Test, files: Record<string, string | Buffer>): string {
  const folder = t.testdir({})
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    writeFileSync(join(folder, name), content)
  }
  return folder
}
