/**
 * Machines in small: network namespaces below the one that the test runs in (`network-namespace.ts`), which is everything
 * else. Each has one cable for each network, whose other end is in a bridge of the test; cables can be pulled. They end
 * with the test.
 */
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, readlinkSync } from 'node:fs'
import { namespaceCommand } from './network-namespace.ts'
import { until } from './until.ts'

/** The device of a machine, its bridge here, and the network: our address ends with 1, that of a machine with 10 + n. */
const NETWORKS = {
  world: { device: 'eth0', bridge: 'world', prefix: '10.25.0' },
  database: { device: 'eth1', bridge: 'database', prefix: '10.25.1' },
  clients: { device: 'eth2', bridge: 'clients', prefix: '10.25.2' },
} as const
type NetworkName = keyof typeof NETWORKS
const ALL = Object.keys(NETWORKS) as NetworkName[]

export const ourAddress = (network: NetworkName): string => `${NETWORKS[network].prefix}.1`
export const networkOf = (network: NetworkName): string => `${NETWORKS[network].prefix}.0/24`
/** An address in the world that no machine has by itself. */
export const floatingAddress = (number: number): string => `${NETWORKS.world.prefix}.${100 + number}`

export interface Machine {
  /** Words before a command that runs there. */
  command: readonly string[]
  address(network: NetworkName): string
  /** Resolves with what it says. */
  run(...words: string[]): string
  /** Behind its cable, which it does not notice. */
  cut(isCut: boolean, network: NetworkName): void
  /** All cables, or one, are pulled or put in again. */
  pull(isPulled: boolean, ...networks: NetworkName[]): void
  /** Machines that are alone hear us and no other machine that is. */
  setAlone(isAlone: boolean): void
  addresses(): string[]
}

const here = (...words: string[]): string => execFileSync('ip', words, { encoding: 'utf8' })

export function startNetworks(): void {
  here('link', 'set', 'lo', 'up')
  for (const [index, { bridge, prefix }] of Object.values(NETWORKS).entries()) {
    // Without one of its own it has that of a port: with the cable of that one pulled, all machines would look for us.
    here('link', 'add', 'name', bridge, 'address', `02:25:00:00:00:0${index + 1}`, 'type', 'bridge')
    here('address', 'add', `${prefix}.1/24`, 'dev', bridge)
    here('link', 'set', bridge, 'up')
  }
}

export async function startMachine(number: number): Promise<Machine> {
  const keeper = spawn('unshare', ['--net', 'sleep', 'infinity'], { stdio: 'ignore' })
  keeper.unref()
  const namespace = `/proc/${keeper.pid}/ns/net`
  await until('the machine has a network', () => readlinkSync(namespace) !== readlinkSync('/proc/self/ns/net'))
  const command = ['nsenter', `--net=${namespace}`]
  const address = (network: NetworkName): string => `${NETWORKS[network].prefix}.${10 + number}`
  const endOf = (network: NetworkName): string => `${network}${number}`
  const run = (...words: string[]): string =>
    execFileSync('nsenter', [...command.slice(1), ...words], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  run('ip', 'link', 'set', 'lo', 'up')
  for (const network of ALL) {
    const { device, bridge } = NETWORKS[network]
    const end = endOf(network)
    here('link', 'add', 'name', end, 'type', 'veth', 'peer', 'name', device, 'netns', String(keeper.pid))
    here('link', 'set', end, 'master', bridge, 'up')
    run('ip', 'address', 'add', `${address(network)}/24`, 'dev', device)
    run('ip', 'link', 'set', device, 'up')
  }
  return {
    command,
    address,
    run,
    cut(isCut, network) {
      here('link', 'set', endOf(network), ...(isCut ? ['nomaster'] : ['master', NETWORKS[network].bridge]))
    },
    pull(isPulled, ...networks) {
      for (const network of networks.length === 0 ? ALL : networks)
        here('link', 'set', endOf(network), isPulled ? 'down' : 'up')
    },
    setAlone(isAlone) {
      const state = isAlone ? 'on' : 'off'
      for (const network of ALL) execFileSync('bridge', ['link', 'set', 'dev', endOf(network), 'isolated', state])
    },
    addresses: () =>
      [...run('ip', '-o', '-4', 'address', 'show', 'dev', 'eth0').matchAll(/inet ([\d.]+)/g)].map(([, ip = '']) => ip),
  }
}

/** Words before a test that has machines: whatever it starts or mounts ends with it. */
export const inMachineRoom = ['unshare', '--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc']

/** For tap's `skip`. */
export const skipWithoutMachines = whyNone()

function whyNone(): string | false {
  if (process.getuid?.() !== 0 || namespaceCommand() === null)
    return 'no network namespace can be made here: needs root and iproute2'
  const missing = ['/usr/sbin/keepalived', '/usr/bin/arping', '/usr/bin/jq'].filter((file) => !existsSync(file))
  return missing.length > 0 && `${missing.join(', ')}: not installed`
}
