/** The doors of this server, as its own machine reaches them. Pure. */
import { execFile } from 'node:child_process'
import type { ServerSettings } from '../../config/settings/server-settings.ts'
import { SECOND } from '../../base/clock.ts'

const ANSWER_MILLISECONDS = 5 * SECOND

/** As in: users:(("exim4",pid=812,fd=4),("exim4",pid=811,fd=4)) */
const HOLDER = /\("([^"]+)",pid=(\d+)/g

export interface Door {
  /** Key of sternpost.yaml: `listen.inbound`. */
  setting: string
  /** As configured. */
  address: string
  /** Where this machine reaches it. */
  host: string
  port: number
  protocol: 'http' | 'https' | 'smtp' | 'smtps'
}

export function ownDoors({ listen }: ServerSettings): Door[] {
  const { metrics } = listen
  return [
    ...listen.http.map((door) => doorAt('listen.http', door, door.tls ? 'https' : 'http')),
    ...listen.submission.map((door) => doorAt('listen.submission', door, door.tls === 'implicit' ? 'smtps' : 'smtp')),
    ...listen.inbound.map((door) => doorAt('listen.inbound', door, 'smtp')),
    ...(metrics === null ? [] : [doorAt('listen.metrics', metrics, 'http')]),
  ]
}

function doorAt(
  setting: string,
  { address, port }: { address: string; port: number },
  protocol: Door['protocol'],
): Door {
  return { setting, address, host: loopbackOf(address), port, protocol }
}

/** One that listens on every address listens on this one too. */
function loopbackOf(address: string): string {
  return address === '*' || address === '0.0.0.0' ? '127.0.0.1' : address === '::' ? '::1' : address
}

/* MERGED src/health/checks/port-holder.ts
 Which program listens at a port of this machine, by `ss`. Never rejects. */

/** `exim4 (process 812)`; null: not known, nobody, or the socket unit, whose ports are ours. */
export function holderOf(port: number): Promise<string | null> {
  return new Promise((resolve) => {
    execFile('ss', ['-Hltnp', `sport = :${port}`], { timeout: ANSWER_MILLISECONDS }, (error, stdout) =>
      resolve(error === null ? holderIn(stdout) : null),
    )
  })
}

export function holderIn(text: string): string | null {
  const holders = [...text.matchAll(HOLDER)].map(([, name = '', processId = '']) => ({ name, processId }))
  const [first] = holders
  if (first === undefined || holders.some(({ name }) => name === 'systemd')) return null
  return `${first.name} (process ${first.processId})`
}
