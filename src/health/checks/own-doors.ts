/** The doors of this server, as its own machine reaches them, and who holds a port of it. Never rejects. */
import { execFile } from 'node:child_process'
import { SECOND } from '../../base/clock.ts'
import type { ServerSettings } from '../../config/settings/server-settings.ts'

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

type Place = Pick<Door, 'address' | 'port'>

export function ownDoors({ listen }: ServerSettings): Door[] {
  const { metrics } = listen
  const doorAt = (setting: string, protocol: Door['protocol'], { address, port }: Place): Door => {
    // One that listens on every address listens on this one too.
    const isAny = address === '*' || address === '0.0.0.0'
    const host = isAny ? '127.0.0.1' : address === '::' ? '::1' : address
    return { setting, address, host, port, protocol }
  }
  return [
    ...listen.http.map((door) => doorAt('listen.http', door.tls ? 'https' : 'http', door)),
    ...listen.submission.map((door) => doorAt('listen.submission', door.tls === 'implicit' ? 'smtps' : 'smtp', door)),
    ...listen.inbound.map((door) => doorAt('listen.inbound', 'smtp', door)),
    ...(metrics === null ? [] : [doorAt('listen.metrics', 'http', metrics)]),
  ]
}

/** Who listens, by `ss`: `exim4 (process 812)`; null: not known, nobody, or the socket unit, whose ports are ours. */
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
