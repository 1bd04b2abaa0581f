/**
 * The units, and at the full size the Debian package itself: what is in it, and that two builds are equal. What it does
 * on a machine is shown by `package/boot`.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { serverSchema } from '../../src/config/settings/server-settings.ts'
import { BUILD_ENVIRONMENT, PACKAGE_SOURCES } from '../support/built.ts'
import { ROOT } from '../support/source-files.ts'

const SERVICE = join(ROOT, 'systemd/sternpost.service')
const SOCKET = join(ROOT, 'systemd/sternpost.socket')
/** Tenths: 1.5 is the limit. */
const MOST_EXPOSURE = 15

const needs = (program: string): { skip: string | false } => ({
  skip: spawnSync(program, ['--version']).error !== undefined && `${program} is not there`,
})
const WITH_DPKG = needs('dpkg-deb')

t.test('the unit is hardened', needs('systemd-analyze'), async (t) => {
  const words = ['security', '--offline=true', `--threshold=${MOST_EXPOSURE}`, '--no-pager', SERVICE]
  const { status, stdout, stderr } = spawnSync('systemd-analyze', words, { encoding: 'utf8' })
  const summary = /Overall exposure level .*/.exec(stdout)?.[0]
  t.equal(status, 0, summary ?? stderr)
  t.comment(summary)
})

t.test('the unit lets V8 make code, and takes no comment behind a value', async (t) => {
  const lines = readFileSync(SERVICE, 'utf8')
    .split('\n')
    .filter((line) => !line.startsWith('#'))
  t.notOk(lines.some((line) => line.startsWith('MemoryDenyWriteExecute')))
  t.same(
    lines.filter((line) => line.includes('#')),
    [],
  )
})

t.test('systemd opens every low port of the configuration that is the default', async (t) => {
  const text = readFileSync(SOCKET, 'utf8')
  const opened = [...text.matchAll(/^ListenStream=(\d+)$/gm)].map((match) => Number(match[1]))
  const { listen } = serverSchema.parse({ version: 1, hostname: 'mail.sternpost.test' })
  const named = [...listen.http, ...listen.submission, ...listen.inbound].map(({ port }) => port)
  t.same(opened.toSorted(byNumber), named.filter((port) => port < 1024).toSorted(byNumber))
})

const byNumber = (left: number, right: number): number => left - right

/** Two builds take minutes: at the full size alone. */
if (process.env['TEST_SCALE'] === 'full') t.test('two builds of the package are equal', WITH_DPKG, buildsAreEqual)

async function buildsAreEqual(t: Test): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-package-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  // Files that somebody changes between the builds would make a difference.
  for (const name of PACKAGE_SOURCES) cpSync(join(ROOT, name), join(folder, 'source', name), { recursive: true })
  const build = (name: string): Buffer => {
    mkdirSync(join(folder, name))
    const words = [join(folder, 'source/scripts/build-deb'), '--fast', '--output', join(folder, name)]
    return readFileSync(execFileSync('sh', words, { encoding: 'utf8', env: BUILD_ENVIRONMENT }).trim())
  }
  const [first, second] = [build('first'), build('second')]
  const digest = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')
  t.equal(digest(first), digest(second))
}
