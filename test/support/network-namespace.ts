/**
 * Runs a test in a network namespace of its own, where it may give the machine addresses and routes. Takes root, or a
 * kernel that lets everybody have a user namespace, and the commands `unshare` and `ip`.
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const WAYS = [['--net'], ['--user', '--map-root-user', '--net']] as const
const PROBE = 'ip link set lo up && ip addr add 203.0.113.254/32 dev lo'

/** The words before a command, or null: this machine does not let us. */
export function namespaceCommand(): readonly string[] | null {
  const isOpen = (words: readonly string[]): boolean =>
    spawnSync('unshare', [...words, 'sh', '-c', PROBE], { stdio: 'ignore' }).status === 0
  const way = WAYS.find(isOpen)
  return way === undefined ? null : ['unshare', ...way]
}

/** Runs the module, whose output is that of this process; resolves with its exit code. */
export async function runInNamespace(command: readonly string[], module: URL): Promise<number> {
  const [program = '', ...words] = command
  const child = spawn(program, [...words, process.execPath, ...process.execArgv, fileURLToPath(module)], {
    stdio: 'inherit',
  })
  // Whoever ends this test ends that one too.
  process.on('SIGTERM', () => child.kill('SIGKILL'))
  const [code] = await once(child, 'exit')
  return Number(code ?? 1)
}
