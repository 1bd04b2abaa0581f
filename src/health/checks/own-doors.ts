/** The doors of this server, as its own machine reaches them. Pure. */
import type { ServerSettings } from '../../config/settings/server-settings.ts'

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
