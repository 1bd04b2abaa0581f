/**
 * The apt repository, as an administrator uses it: apt reads it, takes the newest version of its architecture, sees an
 * upgrade, and refuses what somebody changed or signed with another key. apt has folders of its own here.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { missingPrograms } from '../support/programs.ts'
import { temporaryFolder } from '../support/sandbox-process.ts'
import { signingKeys } from '../support/signing-keys.ts'

const BUILD = fileURLToPath(new URL('../../scripts/build-repository', import.meta.url))
const PROGRAMS = { gpg: ['gpg'], 'apt-ftparchive': ['apt-utils'], 'dpkg-deb': ['dpkg'], 'apt-get': ['apt'] }

t.test('a signed repository', { skip: missingPrograms(PROGRAMS) }, async (t) => {
  const folder = temporaryFolder(t)
  const repository = join(folder, 'repository')
  const environment = signingKeys(t, join(folder, 'keys'), ['ours@sternpost.test', 'theirs@sternpost.test'])
  const publish = (key: string, version: string): void => {
    const packages = ['amd64', 'arm64'].flatMap((arch) => ['--package', smallPackage(folder, version, arch)])
    execFileSync(BUILD, [repository, '--key', `${key}@sternpost.test`, ...packages], { env: environment })
  }
  const apt = (arch: string, ...words: string[]) => aptIn(folder, repository, arch, words)

  publish('ours', '0.1.0')
  copyFileSync(join(repository, 'sternpost.asc'), join(folder, 'trusted.asc'))
  for (const arch of ['amd64', 'arm64']) {
    t.equal(apt(arch, 'update').status, 0, `apt reads it on ${arch}`)
    t.match(apt(arch, 'install', '--simulate', 'sternpost').stdout, new RegExp(`Inst sternpost \\(0\\.1\\.0 .*${arch}`))
  }
  t.equal(apt('amd64', 'download', 'sternpost').status, 0, 'the package is what the index says')

  publish('ours', '0.2.0')
  apt('amd64', 'update')
  t.match(apt('amd64', 'install', '--simulate', 'sternpost').stdout, /Inst sternpost \(0\.2\.0/, 'the newer one')
  t.match(apt('amd64', 'install', '--simulate', 'sternpost=0.1.0').stdout, /Inst sternpost \(0\.1\.0/, 'and the older')

  await t.test('a version that is there never changes', async (t) => {
    const changed = smallPackage(folder, '0.2.0', 'amd64', 'another description')
    const words = [repository, '--key', 'ours@sternpost.test', '--package', changed]
    const { status, stderr } = spawnSync(BUILD, words, { env: environment, encoding: 'utf8' })
    t.equal(status, 1)
    t.match(stderr, /raise the version/)
  })

  await t.test('what somebody changed is refused', async (t) => {
    const index = join(repository, 'dists/stable/main/binary-amd64/Packages')
    const release = join(repository, 'dists/stable/InRelease')
    const signed = readFileSync(release, 'utf8')
    writeFileSync(release, signed.replace('Suite: stable', 'Suite: stablf'))
    t.match(apt('amd64', 'update').stderr, /invalid|BADSIG|not signed/)
    writeFileSync(release, signed)
    t.ok(readFileSync(index, 'utf8').includes('0.2.0'))
  })

  await t.test('another key is refused', async (t) => {
    publish('theirs', '0.3.0')
    const { stderr } = apt('amd64', 'update')
    t.match(stderr, /NO_PUBKEY|not signed/)
    t.notMatch(apt('amd64', 'install', '--simulate', 'sternpost').stdout, /0\.3\.0/)
  })
})

/** A package with the fields of ours and nothing in it. */
function smallPackage(folder: string, version: string, arch: string, description = 'for a test'): string {
  const root = join(folder, `package-${version}-${arch}`)
  mkdirSync(join(root, 'DEBIAN'), { recursive: true })
  const fields = { Package: 'sternpost', Version: version, Architecture: arch, Maintainer: 'x <x@sternpost.test>' }
  const lines = Object.entries({ ...fields, Description: description }).map(([name, value]) => `${name}: ${value}\n`)
  writeFileSync(join(root, 'DEBIAN/control'), lines.join(''))
  const file = join(folder, `sternpost_${version}_${arch}.deb`)
  execFileSync('dpkg-deb', ['--root-owner-group', '--build', root, file], { stdio: 'ignore' })
  return file
}

/** Only this repository, only the key that was exported first. */
function aptIn(folder: string, repository: string, arch: string, words: string[]) {
  const state = join(folder, `apt-${arch}`)
  for (const name of ['lists/partial', 'cache/archives/partial', 'parts'])
    mkdirSync(join(state, name), { recursive: true })
  writeFileSync(join(state, 'status'), '')
  writeFileSync(join(state, 'sources.list'), `deb [signed-by=${folder}/trusted.asc] file:${repository} stable main\n`)
  const options = {
    'APT::Architecture': arch,
    'APT::Architectures': arch,
    'APT::Sandbox::User': '',
    'Dir::Etc::SourceList': `${state}/sources.list`,
    'Dir::Etc::SourceParts': `${state}/parts`,
    'Dir::State': state,
    'Dir::State::status': `${state}/status`,
    'Dir::Cache': `${state}/cache`,
  }
  const flags = Object.entries(options).flatMap(([name, value]) => ['-o', `${name}=${value}`])
  return spawnSync('apt-get', [...flags, ...words], {
    cwd: state,
    encoding: 'utf8',
    env: { ...process.env, LC_ALL: 'C' },
  })
}
