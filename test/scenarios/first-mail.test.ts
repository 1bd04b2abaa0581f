/**
 * From a bare Debian, really booted, to the first mail accepted by https with a certificate of an authority: by our apt
 * repository, two commands, at most two minutes; then an upgrade. `package/boot` tells how.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { builtPackage, earlierPackage, HERE } from '../support/built.ts'
import { skipWithoutPebble } from '../support/pebble.ts'
import { missingPrograms } from '../support/programs.ts'
import { ROOT } from '../support/source-files.ts'

/** Of `boot`: what it needs is not here. */
const IMPOSSIBLE = 77
const PROGRAMS = {
  mmdebstrap: ['mmdebstrap'],
  'systemd-nspawn': ['systemd-container'],
  gpg: ['gpg'],
  'apt-ftparchive': ['apt-utils'],
}

t.setTimeout(1_200_000)

const skip = missingPrograms(PROGRAMS) || skipWithoutPebble
t.test('from a bare Debian to the first mail', { skip }, (t) => {
  const packages = ['--package', builtPackage(HERE), '--earlier', earlierPackage(HERE)]
  const words = ['--story', 'first-mail', ...packages]
  const { status, stdout, stderr } = spawnSync(join(ROOT, 'test/scenarios/package/boot'), words, { encoding: 'utf8' })
  if (status === IMPOSSIBLE) t.pass('a machine is booted', { skip: `no machine can be booted here: ${stderr.trim()}` })
  else t.equal(status, 0, 'all of it')
  for (const [, verdict = '', text = ''] of stdout.matchAll(/^(ok|FAILED) - (.*)$/gm)) t.equal(verdict, 'ok', text)
  if (status !== 0) t.comment(`${stdout}\n${stderr}`)
  t.end()
})
