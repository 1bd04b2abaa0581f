/**
 * npm run test:changed: the tests that reach a changed file through imports, nearest first.
 *
 * Changed is what differs from the branch `main` (`--since REVISION` names another commit), and what is not committed.
 * A test file that is changed itself comes first. At most MOST_FILES run, which takes about a minute; the number of
 * those left out is printed. A change that no import shows (a page, a unit file, a setting) reaches no test.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { parseArgs } from 'node:util'
import { filesBelow, ROOT, specifiersOf, targetOf } from '../test/support/source-files.ts'

const MOST_FILES = 24
const ENDING = '.test.ts'
/** What takes minutes and is for the full size alone. */
const FULL_ENDING = '.full.test.ts'

const { values: flags } = parseArgs({ options: { since: { type: 'string', default: 'main' } } })

const tests = reached(changedFiles(flags.since))
const chosen = tests.slice(0, MOST_FILES)
if (chosen.length === 0) process.stdout.write('No test reaches what was changed.\n')
else process.exitCode = run(chosen, tests.length - chosen.length)

function changedFiles(since: string): string[] {
  const git = (...words: string[]): string[] =>
    execFileSync('git', words, { cwd: ROOT, encoding: 'utf8' })
      .split('\n')
      .filter((line) => line !== '')
  const base = git('merge-base', since, 'HEAD')[0] ?? since
  return [...new Set([...git('diff', '--name-only', base), ...git('ls-files', '--others', '--exclude-standard')])]
}

/** Tests by the number of imports between them and a changed file. */
function reached(changed: readonly string[]): string[] {
  const importers = importersOfAll()
  const distances = new Map(changed.map((name) => [name, 0]))
  for (const [name, distance] of distances) {
    for (const importer of importers.get(name) ?? []) {
      if (!distances.has(importer)) distances.set(importer, distance + 1)
    }
  }
  return [...distances.keys()].filter(
    (name) => name.startsWith('test/') && name.endsWith(ENDING) && !name.endsWith(FULL_ENDING),
  )
}

function importersOfAll(): Map<string, string[]> {
  const importers = new Map<string, string[]>()
  for (const folder of ['src', 'test', 'scripts']) {
    for (const { name, text } of filesBelow(`${ROOT}/${folder}`)) {
      const importer = `${folder}/${name}`
      for (const specifier of specifiersOf(text)) {
        if (!specifier.startsWith('.')) continue
        const target = targetOf(importer, specifier)
        importers.set(target, [...(importers.get(target) ?? []), importer])
      }
    }
  }
  return importers
}

function run(files: readonly string[], left: number): number {
  if (left > 0) process.stdout.write(`${left} more tests reach what was changed: npm test runs all.\n`)
  return spawnSync('sh', ['scripts/test', ...files], { cwd: ROOT, stdio: 'inherit' }).status ?? 1
}
