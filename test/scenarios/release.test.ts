/**
 * A release: one version everywhere, and the command refuses, before it builds anything, what would be no release of it.
 * At the full size it is run, and everything that it promises is there and is what it says.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { appendFileSync, cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { PACKAGE_SOURCES } from '../support/built.ts'
import { missingPrograms } from '../support/programs.ts'
import { temporaryFolder } from '../support/sandbox-process.ts'
import { signingKeys } from '../support/signing-keys.ts'
import { ROOT } from '../support/source-files.ts'

const KEY = 'release@sternpost.test'
const VERSION = '7.6.5'
const PAGES = ['README.md', 'systemd/README.md', 'test/README.md']
const PROGRAMS = { git: ['git'], gpg: ['gpg'], 'apt-ftparchive': ['apt-utils'], setcap: ['libcap2-bin'] }
const isFull = process.env['TEST_SCALE'] === 'full'

t.setTimeout(3_600_000)

t.test('one version, everywhere', async (t) => {
  const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8')
  const { version } = JSON.parse(read('package.json'))
  t.match(JSON.parse(read('package-lock.json')), { version, packages: { '': { version } } })
  for (const page of PAGES) {
    // The name of a package or an image with its version.
    const named = [...read(page).matchAll(/\bsternpost[_:](\d+\.\d+\.\d+)/g)].map((match) => match[1])
    t.same(
      named.filter((each) => each !== version),
      [],
      page,
    )
  }
})

t.test('the command for a release', { skip: missingPrograms(PROGRAMS) }, async (t) => {
  const folder = temporaryFolder(t)
  const environment = signingKeys(t, join(folder, 'keys'), [KEY])
  const tree = join(folder, 'tree')
  const git = (...words: string[]): void => {
    const author = ['-c', 'user.name=x', '-c', 'user.email=x@sternpost.test']
    execFileSync('git', ['-C', tree, ...author, ...words], { stdio: 'ignore' })
  }
  const changelog = join(tree, 'CHANGELOG.md')
  const release = (output: string, key = KEY) =>
    spawnSync(join(tree, 'scripts/release'), [output, '--key', key], { env: environment, encoding: 'utf8' })
  const isRefused = (status: number, says: RegExp, ...words: Parameters<typeof release>): void => {
    const ended = release(...words)
    t.equal(ended.status, status, String(says))
    t.match(ended.stderr, says)
  }
  copyTree(tree)
  git('init')
  git('add', '.')
  git('commit', '--message', 'all')

  const output = join(folder, 'release')
  isRefused(77, /no secret key somebody@sternpost\.test/, output, 'somebody@sternpost.test')
  isRefused(64, /is not empty/, tree)
  isRefused(65, /has no part "## \[7\.6\.5\]"/, output)
  appendFileSync(changelog, '\n## [Unreleased]\n\n- Something.\n')
  isRefused(65, /changes that are not committed/, output)
  git('commit', '--all', '--message', 'more')
  isRefused(65, /give it the version/, output)
  t.same(readdirSync(output), [], 'nothing was made')
  if (!isFull) return

  writeFileSync(changelog, readFileSync(changelog, 'utf8').replace('[Unreleased]', `[${VERSION}]`))
  git('commit', '--all', '--message', 'release')
  const { status, stderr } = release(output)
  t.equal(status, 0, stderr)
  const ofEach = (arch: string) => ['deb', 'oci.tar', 'spdx.json'].map((kind) => `sternpost_${VERSION}_${arch}.${kind}`)
  const files = [...ofEach('amd64'), ...ofEach('arm64'), 'CHANGES.md', 'compose.yaml']
  t.same(readdirSync(output).toSorted(), [...files, 'SHA256SUMS', 'SHA256SUMS.asc', 'apt'].toSorted())
  t.equal(readFileSync(join(output, 'CHANGES.md'), 'utf8').trim(), '- Something.')
  const sums = readFileSync(join(output, 'SHA256SUMS'), 'utf8')
  t.same([...sums.matchAll(/^[0-9a-f]{64} {2}(.*)$/gm)].map((match) => match[1]).toSorted(), files.toSorted())
  const run = (program: string, ...words: string[]) =>
    spawnSync(program, words, { cwd: output, env: environment, encoding: 'utf8' })
  t.equal(run('sha256sum', '--check', '--strict', 'SHA256SUMS').status, 0, 'the checksums are right')
  t.equal(run('gpg', '--verify', 'SHA256SUMS.asc', 'SHA256SUMS').status, 0, 'and signed')
  t.equal(run('gpg', '--verify', 'apt/dists/stable/InRelease').status, 0, 'as is the repository')
  for (const arch of ['amd64', 'arm64']) {
    const [name = ''] = ofEach(arch)
    t.equal(run('cmp', name, `apt/pool/main/${name}`).status, 0, `the repository has the package for ${arch}`)
    t.match(run('dpkg-deb', '--field', name).stdout, `Version: ${VERSION}\nArchitecture: ${arch}`)
    const contents = JSON.parse(readFileSync(join(output, `sternpost_${VERSION}_${arch}.spdx.json`), 'utf8'))
    t.match(contents.packages, [
      { name: 'base-files', externalRefs: [{ referenceLocator: new RegExp(`arch=${arch}$`) }] },
    ])
  }
})

/** This tree with the version of the test, and no changes that are listed. */
function copyTree(tree: string): void {
  mkdirSync(tree)
  for (const name of PACKAGE_SOURCES) cpSync(join(ROOT, name), join(tree, name), { recursive: true })
  for (const name of ['package.json', 'package-lock.json']) {
    const text = readFileSync(join(tree, name), 'utf8')
    writeFileSync(join(tree, name), text.replace(/"version": ".*"/, `"version": "${VERSION}"`))
  }
  writeFileSync(join(tree, 'CHANGELOG.md'), '# Changelog\n')
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'))
  writeFileSync(join(tree, '.gitignore'), 'node_modules\n')
}
