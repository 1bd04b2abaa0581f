/**
 * What the service manager wants to hear (systemd/README.md "The unit"; sd_notify(3)), by way of the systemd-notify
 * command, because Node has no datagram Unix sockets; one after the other, so that a READY never overtakes its
 * RELOADING. Without a service manager nothing is run. A notice that fails is reported to `onError`.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { HOUR, MINUTE, SECOND, type Clock } from '../clock.ts'

const run = promisify(execFile)
const NOTIFY_TIMEOUT = 5 * SECOND
const MICROSECONDS_PER_MILLISECOND = 1_000
/** A third of the watchdog's time leaves two more tries before it bites. */
const WATCHDOG_SHARE = 3
const STATUS_EVERY = MINUTE
const EXTEND_EVERY = 20 * SECOND
const EXTEND_BY = MINUTE
/** A start that is not over by then hangs. */
const LONGEST_START = HOUR

/** What a part of the service may say of itself. */
export interface ServiceNotices {
  /** A reload begins; `ready` follows when it is over, whatever came of it. */
  reloading(): void
  ready(): void
}

export type ServiceManager = ReturnType<typeof createServiceManager>

interface ServiceManagerOptions {
  environment: NodeJS.ProcessEnv
  clock: Clock
  onError: (thrown: unknown) => void
}

export function createServiceManager({ environment, clock, onError }: ServiceManagerOptions) {
  const isManaged = environment['NOTIFY_SOCKET'] !== undefined
  const watchdogMilliseconds = Number(environment['WATCHDOG_USEC'] ?? 0) / MICROSECONDS_PER_MILLISECOND
  const startedAt = clock.now()
  const cancels = new Map<string, () => void>()
  let last: Promise<unknown> = Promise.resolve()

  const notify = (...states: string[]): void => {
    // Without --no-block the command lives until systemd has read the notice, which NotifyAccess needs.
    if (isManaged) last = last.then(() => run('systemd-notify', states, { timeout: NOTIFY_TIMEOUT })).catch(onError)
  }
  const repeat = (name: string, delayMilliseconds: number, action: () => void): void => {
    action()
    const again = (): void => repeat(name, delayMilliseconds, action)
    cancels.set(name, clock.after(delayMilliseconds, again))
  }
  const end = (name: string): void => {
    cancels.get(name)?.()
    cancels.delete(name)
  }

  return {
    isManaged,
    /** Until `ready`, and for an hour at most, a start that takes long (a migration) is not cut off. */
    starting(): void {
      if (!isManaged) return
      repeat('start', EXTEND_EVERY, () => {
        if (clock.now() - startedAt >= LONGEST_START) return
        notify(`EXTEND_TIMEOUT_USEC=${EXTEND_BY * MICROSECONDS_PER_MILLISECOND}`)
      })
    },
    ready(): void {
      end('start')
      notify('READY=1')
    },
    reloading: () => notify('RELOADING=1'),
    stopping: () => notify('STOPPING=1', 'STATUS=stopping'),
    /** How the service is, until something else is said. */
    say: (text: string) => notify(`STATUS=${text}`),
    /** Says each minute, and at once, how the service is. */
    startStatus(describe: () => Promise<string>): void {
      if (!isManaged) return
      repeat('status', STATUS_EVERY, () => {
        describe().then((text) => notify(`STATUS=${text}`), onError)
      })
    },
    /** Sends a sign of life every third of the watchdog's time, each time only after `isAlive` has resolved. */
    startWatchdog(isAlive: () => Promise<void>): void {
      if (!isManaged || watchdogMilliseconds <= 0) return
      repeat('watchdog', watchdogMilliseconds / WATCHDOG_SHARE, () => {
        isAlive().then(() => notify('WATCHDOG=1'), onError)
      })
    },
    stop(): void {
      for (const name of cancels.keys()) end(name)
    },
  }
}
