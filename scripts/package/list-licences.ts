/**
 * Prints a line for each module of a folder: name, version, licence as the module states it. For modules that bring no
 * text of their licence along: `node scripts/package/list-licences.ts NODE_MODULES`. Fails when one states none.
 */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const USAGE = 64

const [folder] = process.argv.slice(2)
if (folder === undefined) {
  process.stderr.write('usage: node scripts/package/list-licences.ts NODE_MODULES\n')
  process.exit(USAGE)
}
const manifests = globSync(
  ['*/package.json', '@*/*/package.json', '**/node_modules/*/package.json', '**/node_modules/@*/*/package.json'],
  { cwd: folder },
)
const lines = manifests.map((file) => {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, file), 'utf8'))
  if (typeof license !== 'string') throw new Error(`${join(folder, file)} states no licence`)
  return `${name} ${version}: ${license}\n`
})
process.stdout.write([...new Set(lines)].toSorted().join(''))
