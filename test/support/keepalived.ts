/** keepalived on machines in small, as systemd/README.md "More than one machine" sets it up, and the hook that asks it. */
import { spawn } from 'node:child_process'
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Machine } from './machines.ts'
import { shownText } from './shown-texts.ts'

const PAGE = 'systemd/README.md'
/** Of the page. */
const ADDRESS = '203.0.113.7'
const WANTED = '/run/move-ip'
const FIRST_OF_AN_ADDRESS = 'track_file wanted_7'

export interface Keepalived {
  /** As at the boot of the machine: no address is wanted. */
  start(): void
  /** At once, as with its machine: its addresses stay. */
  kill(): void
}

/** For `cluster.ip_hook`: one program for all machines, whose folders are named after the nodes. */
export function writeMoveIp(folder: string): string {
  const file = join(folder, 'move-ip')
  const shown = shownText(PAGE, '# move-ip: keepalived', { [WANTED]: `${folder}/$STERNPOST_NODE` })
  writeFileSync(file, shown)
  chmodSync(file, 0o755)
  return file
}

interface KeepalivedOptions {
  folder: string
  nodeId: string
  healthUrl: string
  ips: readonly string[]
}

export function keepalivedOn(machine: Machine, { folder, nodeId, healthUrl, ips }: KeepalivedOptions): Keepalived {
  const own = join(folder, nodeId)
  mkdirSync(own)
  const shown = shownText(PAGE, FIRST_OF_AN_ADDRESS, { [WANTED]: own, 'https://127.0.0.1/health': healthUrl })
  const start = shown.indexOf(FIRST_OF_AN_ADDRESS)
  const parts = ips.map((ip, index) =>
    shown
      .slice(start)
      .replaceAll(ADDRESS, ip)
      .replaceAll('_7', `_${index}`)
      .replace('id 7', `id ${index + 1}`),
  )
  const configuration = join(folder, `${nodeId}.conf`)
  writeFileSync(configuration, shown.slice(0, start) + parts.join(''))
  const [program = '', ...words] = machine.command
  const pids = [join(folder, `${nodeId}.pid`), join(folder, `${nodeId}.vrrp.pid`)] as const
  const pidFiles = ['-p', pids[0], '-r', pids[1]]
  let running: ReturnType<typeof spawn> | undefined
  return {
    start() {
      for (const file of pids) rmSync(file, { force: true })
      for (const ip of ips) writeFileSync(join(own, ip), '1\n')
      for (const ip of machine.addresses().filter((each) => ips.includes(each)))
        machine.run('ip', 'address', 'del', `${ip}/32`, 'dev', 'eth0')
      const all = [...words, 'keepalived', '--vrrp', '--dont-fork', '--log-console', '-f', configuration, ...pidFiles]
      running = spawn(program, all, { stdio: 'ignore', detached: true })
      running.unref()
    },
    kill() {
      // With the processes that it has started.
      if (running?.pid !== undefined) process.kill(-running.pid, 'SIGKILL')
      running = undefined
    },
  }
}
