/**
 * What the service manager wants to hear (operations.md 10; sd_notify(3)).
 *
 * Notices go through the systemd-notify command, because Node has no datagram Unix sockets. Without a service manager
 * nothing is run. A notice that fails is reported to `onError` and changes nothing else.
 */
import { execFile } from 'node:child_process'
import type { Clock } from './clock.ts'
import { SECOND } from './clock.ts'

const NOTIFY_TIMEOUT = 5 * SECOND
const MICROSECONDS_PER_MILLISECOND = 1_000
/** A third of the watchdog's time leaves two more tries before it bites. */
const WATCHDOG_SHARE = 3

export interface ServiceManager {
  ready(): void
  stopping(): void
  /** Sends a sign of life every third of the watchdog's time, each time only after `isAlive` has resolved. */
  startWatchdog(isAlive: () => Promise<void>): void
  stop(): void
}

export interface ServiceManagerOptions {
  environment: NodeJS.ProcessEnv
  clock: Clock
  onError: (thrown: unknown) => void
}

export function createServiceManager({ environment, clock, onError }: ServiceManagerOptions): ServiceManager {
  const isManaged = environment['NOTIFY_SOCKET'] !== undefined
  const watchdogMilliseconds = Number(environment['WATCHDOG_USEC'] ?? 0) / MICROSECONDS_PER_MILLISECOND
  let cancelWatchdog = (): void => {}

  const notify = (state: string): void => {
    if (!isManaged) return
    // Without --no-block the command lives until systemd has read the notice, which NotifyAccess needs.
    execFile('systemd-notify', [state], { timeout: NOTIFY_TIMEOUT }, (error) => error !== null && onError(error))
  }

  return {
    ready: () => notify('READY=1'),
    stopping: () => notify('STOPPING=1'),
    startWatchdog(isAlive) {
      if (!isManaged || watchdogMilliseconds <= 0) return
      const beat = (): void => {
        isAlive().then(() => notify('WATCHDOG=1'), onError)
        cancelWatchdog = clock.after(watchdogMilliseconds / WATCHDOG_SHARE, beat)
      }
      beat()
    },
    stop: () => cancelWatchdog(),
  }
}
