/**
 * Writes the JSON Schemas of the configuration files into a folder: `node scripts/package/write-schemas.ts FOLDER`. The
 * shipped files name them in their first line.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { configurationSchemas } from '../../src/config/json-schemas.ts'

const SHIPPED_FOLDER = fileURLToPath(new URL('../../config', import.meta.url))
const USAGE = 64

const [folder] = process.argv.slice(2)
if (folder === undefined) {
  process.stderr.write('usage: node scripts/package/write-schemas.ts FOLDER\n')
  process.exit(USAGE)
}
mkdirSync(folder, { recursive: true })
for (const [name, schema] of Object.entries(configurationSchemas(SHIPPED_FOLDER))) {
  writeFileSync(join(folder, `${name}.json`), `${JSON.stringify(schema, null, 2)}\n`)
}
