/** Where the console is: behind doors with TLS, or on loopback, that serve the API with it. Nowhere in plain text. */
import { isLoopback } from '../../base/ip-address.ts'
import type { ServerSettings } from '../../config/settings/server-settings.ts'
import { isTrusted } from '../exchange/client-address.ts'

type Door = Pick<ServerSettings['listen']['http'][number], 'address' | 'port' | 'tls' | 'serve'>
type ConsoleSettings = Pick<ServerSettings, 'console' | 'public_url'> & {
  http: Pick<ServerSettings['http'], 'trusted_proxies'>
}

export function servesConsole(
  { address, tls, serve }: Omit<Door, 'serve' | 'port'> & { serve: readonly string[] },
  settings: Pick<ConsoleSettings, 'console'>,
): boolean {
  if (!settings.console.enabled || !serve.includes('console') || !serve.includes('api')) return false
  return tls || isLoopback(address)
}

/** Ends in a slash; null: no door serves it. One on loopback behind a trusted proxy is found where that is. */
export function consoleAddress(doors: readonly Door[], settings: ConsoleSettings): string | null {
  const found = doors.filter((door) => servesConsole(door, settings))
  const door = found.find(({ tls }) => tls) ?? found[0]
  if (door === undefined) return null
  if (door.tls || isTrusted(door.address, settings.http.trusted_proxies)) {
    return new URL('/console/', settings.public_url).href
  }
  const host = door.address.includes(':') ? `[${door.address}]` : door.address
  return `http://${host}:${door.port}/console/`
}
