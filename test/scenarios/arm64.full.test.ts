/**
 * Package and image for arm64, made on whatever machine this is: every program and library in them is for aarch64, and
 * under emulation the sandbox of the image takes a mail, delivers it, and knows of it after a restart.
 */
import { execFileSync } from 'node:child_process'
import t, { type Test } from 'tap'
import { builtImage, builtPackage } from '../support/built.ts'
import { dataFolder, openContainers, unpackImage, whyNoContainers } from '../support/containers.ts'
import { missingPrograms } from '../support/programs.ts'
import { startSandboxContainer } from '../support/sandbox-container.ts'
import { temporaryFolder } from '../support/sandbox-process.ts'

const EMULATOR = '/usr/bin/qemu-aarch64-static'
/** The kernel here need not know of the emulator: it is the program that is started. */
const PROGRAM = '/emulator'
const WORDS = ['/usr/lib/sternpost/node/bin/node', '/usr/lib/sternpost/src/main.ts']
const START_DEADLINE = 400_000

t.setTimeout(1_200_000)

const withFile = { skip: missingPrograms({ file: ['file'], 'dpkg-deb': ['dpkg'] }) }
t.test('every binary of the package is for aarch64', withFile, async (t) => {
  const folder = temporaryFolder(t)
  execFileSync('dpkg-deb', ['--extract', builtPackage('arm64'), folder])
  areForArm(t, folder, /node\/bin\/node:.*\n.*better-sqlite3/s)
})

t.test('every binary of the image is for aarch64', withFile, async (t) => {
  const folder = temporaryFolder(t)
  unpackImage(builtImage('arm64'), folder)
  areForArm(t, folder, /bin\/dash:.*\n.*lib\/aarch64-linux-gnu\/libc\.so/s)
})

const whyNotEmulated = missingPrograms({ 'qemu-aarch64-static': ['qemu-user-static'] }) || whyNoContainers()
t.test('the image for arm64 runs, emulated', { skip: whyNotEmulated }, async (t) => {
  const containers = await openContainers(t)
  const image = await containers.load(builtImage('arm64'))
  const volumes = { '/data': dataFolder(temporaryFolder(t), 'data'), [`${PROGRAM}:ro`]: EMULATOR }
  const { ended, output } = containers.start(image, { program: PROGRAM, words: [...WORDS, 'version'], volumes })
  t.equal(await ended, 0)
  t.match(output(), /linux-arm64/)
  const open = () =>
    startSandboxContainer(containers, image, { program: PROGRAM, words: WORDS, volumes }, START_DEADLINE)
  const first = await open()
  const id = await first.deliver('From arm64')
  await first.container.kill('TERM')
  t.equal(first.container.exitCode(), 0, 'SIGTERM ends it in order')
  const second = await open()
  t.match(await second.ask(`/v1/email/${id}`), { data: { state: 'delivered' } }, 'a restart keeps the mail')
  await second.deliver('After a restart')
  await second.container.kill('TERM')
})

function areForArm(t: Test, folder: string, has: RegExp): void {
  const words = [folder, '-type', 'f', '-exec', 'file', '{}', '+']
  const found = execFileSync('find', words, { encoding: 'utf8', maxBuffer: 100_000_000 })
  const binaries = found
    .split('\n')
    .filter((line) => /: +(ELF|PE32|Mach-O)/.test(line))
    .toSorted()
  t.match(binaries.join('\n'), has)
  t.same(
    binaries.filter((line) => !/ELF 64-bit .*ARM aarch64/.test(line)),
    [],
  )
  t.comment(`${binaries.length} binaries`)
}
