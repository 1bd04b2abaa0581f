/**
 * Package and image of this tree, packed quickly, for every test that needs them: built once, and kept until a file that
 * goes into them changes. Whoever comes while another process builds one waits for it. Throws when a build fails.
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { HOUR } from '../../src/base/clock.ts'
import { ROOT } from './source-files.ts'

export type Architecture = 'amd64' | 'arm64'

export const HERE: Architecture = process.arch === 'arm64' ? 'arm64' : 'amd64'
/** What the package is built of. */
export const PACKAGE_SOURCES = [
  'src',
  'config',
  'systemd',
  'scripts',
  'package.json',
  'package-lock.json',
  '.npmrc',
  'README.md',
  'LICENSE',
]
/** Any commit's time will do, but always the same. A tree without modules runs its scripts by the Node of the test. */
export const BUILD_ENVIRONMENT = { ...process.env, SOURCE_DATE_EPOCH: '1700000000', STERNPOST_NODE: process.execPath }
export const EARLIER_VERSION = '0.0.9'
const CACHE = join(ROOT, 'node_modules/.cache/sternpost-built')
/** Nothing is there before the command has ended well. */
const BUILD_ONCE =
  'if [ ! -e "$0" ]; then rm -rf "$0.new"; mkdir "$0.new"; "$@" --output "$0.new"; mv "$0.new" "$0"; fi'

/** Words: the package, the version, `--output`, the folder. */
const REPACK = `dpkg-deb --raw-extract "$1" "$4/tree"
sed -i "s/^Version: .*/Version: $2/" "$4/tree/DEBIAN/control"
sed -i "s/^  \\"version\\": .*/  \\"version\\": \\"$2\\",/" "$4/tree/usr/lib/sternpost/package.json"
rm "$4/tree/DEBIAN/md5sums"
dpkg-deb --root-owner-group -Zgzip -z1 --build "$4/tree" "$4/sternpost_$2.deb"
rm -r "$4/tree"`

/** Path of the .deb. */
export function builtPackage(architecture: Architecture): string {
  const command = ['scripts/build-deb', '--fast', '--arch', architecture]
  return built(`package-${architecture}`, '.deb', command)
}

/** The same with an earlier version, without a second build. */
export function earlierPackage(architecture: Architecture): string {
  const command = ['sh', '-ec', REPACK, 'repack', builtPackage(architecture), EARLIER_VERSION]
  return built(`earlier-${architecture}`, '.deb', command)
}

/** Path of the OCI archive. */
export function builtImage(architecture: Architecture): string {
  const command = ['scripts/build-image', '--fast', '--arch', architecture, '--package', builtPackage(architecture)]
  return built(`image-${architecture}`, '.oci.tar', command)
}

function built(name: string, ending: string, command: readonly string[]): string {
  const tree = digestOfSources()
  const folder = join(CACHE, tree, name)
  if (!existsSync(folder)) {
    mkdirSync(join(CACHE, tree), { recursive: true })
    forgetAllBut(tree)
    const words = [`${folder}.lock`, 'sh', '-ec', BUILD_ONCE, folder, ...command]
    execFileSync('flock', words, { cwd: ROOT, env: BUILD_ENVIRONMENT, stdio: ['ignore', 'ignore', 'inherit'] })
  }
  const file = readdirSync(folder).find((each) => each.endsWith(ending))
  if (file === undefined) throw new Error(`nothing that ends with ${ending} in ${folder}`)
  return join(folder, file)
}

/** Builds of what the tree was; a test that still reads one is over within the hour. */
function forgetAllBut(tree: string): void {
  for (const name of readdirSync(CACHE)) {
    const folder = join(CACHE, name)
    const isOld = Date.now() - statSync(folder).mtimeMs > HOUR
    if (name !== tree && isOld) rmSync(folder, { recursive: true, force: true })
  }
}

function digestOfSources(): string {
  const hash = createHash('sha256')
  const add = (name: string): void => {
    const path = join(ROOT, name)
    const stat = statSync(path)
    if (stat.isDirectory()) for (const each of readdirSync(path).toSorted()) add(join(name, each))
    else hash.update(`${name} ${stat.mode}\n`).update(readFileSync(path))
  }
  for (const name of PACKAGE_SOURCES) add(name)
  return hash.digest('hex').slice(0, 16)
}
