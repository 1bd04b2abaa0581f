/**
 * The life of a server process: start, tell the service manager, wait for a reason to end, stop in order.
 *
 * Resolves after a clean stop by SIGTERM or SIGINT. Throws ProcessExit 1 after a fatal report, when what can be stopped
 * was stopped; what can not stop without the part that died ends with the process, a few seconds later. A second SIGINT
 * ends at once (130); a second SIGTERM changes nothing: the manager has its own patience.
 */
import { SECOND } from './clock.ts'
import type { Clock } from './clock.ts'
import { errorText, EXIT, ProcessExit } from './errors.ts'
import type { Logger } from './logger.ts'
import { createServiceManager } from './service-manager.ts'

export interface RunningService {
  /** Resolves when every thread has answered. */
  isAlive(): Promise<void>
  /** The configuration files may have changed (SIGHUP). */
  reload(): void
  stop(): Promise<void>
}

export interface RunServiceOptions {
  start: (onFatal: (reason: Error) => void) => Promise<RunningService>
  logger: Logger
  clock: Clock
}

const OTHERS_AND_GROUP = 0o077

/** After a fatal report the parts may wait for something that is not there any more. */
const LONGEST_STOP_AFTER_FATAL = 5 * SECOND

type Ending = { kind: 'signal'; signal: string } | { kind: 'fatal'; reason: Error }

export async function runService({ start, logger, clock }: RunServiceOptions): Promise<void> {
  // Everything a server writes is its own: database, keys, logs.
  process.umask(OTHERS_AND_GROUP)
  const { ended, onFatal } = endings()
  const manager = createServiceManager({
    environment: process.env,
    clock,
    onError: (thrown) => logger.warn({ err: thrown }, 'service manager was not told'),
  })
  const service = await start(onFatal)
  process.on('SIGHUP', () => service.reload())
  logger.info('ready')
  manager.ready()
  manager.startWatchdog(() => service.isAlive())
  const ending = await ended
  manager.stopping()
  if (ending.kind === 'signal') logger.info({ signal: ending.signal }, 'stopping')
  else logger.error({ err: ending.reason }, 'fatal')
  manager.stop()
  const cancel = ending.kind === 'fatal' ? clock.after(LONGEST_STOP_AFTER_FATAL, () => endAtOnce(logger)) : () => {}
  await service.stop()
  cancel()
  logger.info('stopped')
  if (ending.kind === 'fatal') {
    throw new ProcessExit(EXIT.failed, `posthorn: ${errorText(ending.reason)}`, { cause: ending.reason })
  }
}

/** The next start finds the same as after a kill. */
function endAtOnce(logger: Logger): void {
  logger.error('not stopped in time')
  process.exit(EXIT.failed)
}

function endings(): { ended: Promise<Ending>; onFatal: (reason: Error) => void } {
  const { promise: ended, resolve } = Promise.withResolvers<Ending>()
  let interrupts = 0
  // A log that nobody reads any more: the work is finished, and the manager starts us anew with another one.
  process.stdout.on('error', (reason) => resolve({ kind: 'fatal', reason }))
  // By default it would end the process; until the service is there, the files are being read anyhow.
  process.on('SIGHUP', () => {})
  process.on('SIGTERM', () => resolve({ kind: 'signal', signal: 'SIGTERM' }))
  process.on('SIGINT', () => {
    interrupts += 1
    if (interrupts > 1) process.exit(EXIT.interrupted)
    resolve({ kind: 'signal', signal: 'SIGINT' })
  })
  return { ended, onFatal: (reason) => resolve({ kind: 'fatal', reason }) }
}
