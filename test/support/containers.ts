/**
 * Containers by podman, on the network of the host, in a storage of their own. Each command runs in a mount namespace
 * where control groups have the layout that podman knows; limits are those of this process, which may not raise them.
 */
import { execFile, execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { missingPrograms } from './programs.ts'

const run = promisify(execFile)
const PROGRAMS = { podman: ['podman'], crun: ['crun'], setcap: ['libcap2-bin'], unshare: ['util-linux'] }
const GROUPS = '/sys/fs/cgroup'
const MOST_OUTPUT = 8_000_000
const MOST_LAYER = 500_000_000

/** What of the run is the same for all. */
const FLAGS = [
  '--rm',
  '--read-only',
  '--network=host',
  '--cgroups=disabled',
  '--cap-drop=ALL',
  '--ulimit=nofile=4096:4096',
  '--ulimit=nproc=4096:4096',
]
/** A container of one program, and a file with a capability. Arguments: a folder, then the flags. */
const PROBE = `set -e; folder=$1; shift
for name in proc sys dev etc; do mkdir -p "$folder/tree/$name"; done
for file in /bin/true $(ldd /bin/true | grep -o '/[^ ]*'); do install -D "$file" "$folder/tree$file"; done
cp /bin/true "$folder/copy"; setcap cap_net_bind_service=ep "$folder/copy"
exec podman --root "$folder/root" --runroot "$folder/run" run "$@" --rootfs "$folder/tree" /bin/true`

/** Whom the program in our image runs as. */
export const IMAGE_USER = 2525

/** A new folder of that user, for `/data`. */
export function dataFolder(folder: string, name: string): string {
  const path = join(folder, name)
  mkdirSync(path)
  chownSync(path, IMAGE_USER, IMAGE_USER)
  chmodSync(folder, 0o755)
  return path
}

/** The files of an OCI archive with one layer. */
export function unpackImage(archive: string, folder: string): void {
  const show = (file: string) => execFileSync('tar', ['-xOf', archive, `./${file}`], { maxBuffer: MOST_LAYER })
  const [{ Layers: layers }] = JSON.parse(show('manifest.json').toString())
  execFileSync('tar', ['-xz', '-C', folder], { input: show(layers[0]) })
}

/** What is missing, or why this machine cannot; false: it can. */
export function whyNoContainers(): string | false {
  const missing = missingPrograms(PROGRAMS)
  if (missing !== false) return missing
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-probe-'))
  const { status, stderr } = spawnSync(...inNamespace(PROBE, folder, ...FLAGS), { encoding: 'utf8' })
  rmSync(folder, { recursive: true, force: true })
  return status === 0 ? false : `containers can not run here: ${stderr.trim().split('\n').at(-1)}`
}

export interface ContainerOptions {
  /** A program in it that takes the place of the usual one. */
  program?: string
  /** Behind the name of the image. */
  words: readonly string[]
  /** Paths of the host by path inside; `:ro` behind the latter lets nobody write. */
  volumes?: Record<string, string>
  environment?: Record<string, string>
  /** NET_BIND_SERVICE alone is usual. */
  capabilities?: readonly string[]
}

export interface Container {
  output(): string
  exitCode(): number | null
  ended: Promise<number | null>
  kill(signal: 'KILL' | 'TERM'): Promise<void>
  /** Standard output of a command in it; rejects when that fails. */
  exec(...words: string[]): Promise<string>
}

export async function openContainers(t: { teardown(end: () => unknown): void }) {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-containers-'))
  const places = ['--root', join(folder, 'root'), '--runroot', join(folder, 'run')]
  const podman = (...words: string[]): [string, string[]] => inNamespace('exec podman "$@"', ...places, ...words)
  const command = async (...words: string[]): Promise<string> =>
    (await run(...podman(...words), { maxBuffer: MOST_OUTPUT })).stdout
  const running = new Set<ChildProcess>()
  t.teardown(async () => {
    for (const child of running) child.kill('SIGKILL')
    await command('rm', '--all', '--force').catch(() => {})
    rmSync(folder, { recursive: true, force: true })
  })
  let made = 0

  return {
    /** Resolves with the name of the image. */
    async load(file: string): Promise<string> {
      return (await command('load', '--quiet', '--input', file)).trim().replace('Loaded image: ', '')
    },
    start(image: string, options: ContainerOptions): Container {
      const { program, words, volumes = {}, environment = {}, capabilities = ['NET_BIND_SERVICE'] } = options
      const name = `sternpost-${process.pid}-${++made}`
      const flags = [
        ...FLAGS,
        `--name=${name}`,
        ...(program === undefined ? [] : [`--entrypoint=${program}`]),
        ...capabilities.flatMap((each) => ['--cap-add', each]),
        ...Object.entries(volumes).flatMap(([inside, outside]) => ['--volume', `${outside}:${inside}`]),
        ...Object.entries(environment).flatMap(([key, value]) => ['--env', `${key}=${value}`]),
      ]
      const child = spawn(...podman('run', ...flags, image, ...words), { stdio: ['ignore', 'pipe', 'pipe'] })
      running.add(child)
      let output = ''
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (output += String(text)))
      const ended = once(child, 'close').then(() => {
        running.delete(child)
        return child.exitCode
      })
      return {
        output: () => output,
        exitCode: () => child.exitCode,
        ended,
        async kill(signal) {
          await command('kill', '--signal', signal, name)
          await ended
        },
        exec: (...inside) => command('exec', name, ...inside),
      }
    },
  }
}

/** A program and its words that run a script with these arguments in such a namespace. */
function inNamespace(script: string, ...words: string[]): [string, string[]] {
  const newGroups = `umount -R ${GROUPS}; mount -t cgroup2 cgroup2 ${GROUPS}`
  const prepared = `[ "$(stat -f -c %T ${GROUPS})" = cgroup2fs ] || { ${newGroups}; }\n${script}`
  return ['unshare', ['--mount', '--propagation', 'private', 'sh', '-c', prepared, 'sh', ...words]]
}
