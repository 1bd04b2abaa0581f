/**
 * The life of a server process, from its start to a stop in order (base/README.md "The life of a process"). Resolves
 * after SIGTERM or SIGINT; throws ProcessExit 1 after a fatal report.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MINUTE, SECOND, type Clock } from '../clock.ts'
import { errorText, EXIT, ProcessExit, RestartNeeded } from '../errors.ts'
import type { Logger } from '../logger.ts'
import { createServiceManager, type ServiceManager, type ServiceNotices } from './service-manager.ts'

export interface RunningService {
  /** Resolves when every thread has answered. */
  isAlive(): Promise<void>
  /** How it is, in one line for the service manager. */
  describe(): Promise<string>
  /** The configuration files may have changed (SIGHUP). */
  reload(): void
  stop(): Promise<void>
}

interface RunServiceOptions {
  start: (onFatal: (reason: Error) => void, notices: ServiceNotices) => Promise<RunningService>
  reportFolder: string
  logger: Logger
  clock: Clock
}

const OTHERS_AND_GROUP = 0o077
/** After a fatal report the parts may wait for something that is not there any more. */
const LONGEST_STOP_AFTER_FATAL = 5 * SECOND
/** Of a start behind a signal: what takes longer, such as a migration, ends as by a kill. */
const LONGEST_START_AFTER_SIGNAL = 30 * SECOND
/** Each part has a patience of its own; one that waits for ever all the same, as for a store that is away, has had it. */
const LONGEST_STOP = 5 * MINUTE

/** Once all is stopped; a thread of a backup may be in a call that takes minutes. */
const LONGEST_END = SECOND
/** With the unit's RestartSec no five starts fall into its StartLimitIntervalSec: it is tried for ever. */
const WAIT_FOR_ANOTHER_START = MINUTE

type Ending = { kind: 'signal'; signal: string } | { kind: 'fatal'; reason: Error }

export async function runService({ start, reportFolder, logger, clock }: RunServiceOptions): Promise<void> {
  // Everything a server writes is its own: database, keys, logs.
  process.umask(OTHERS_AND_GROUP)
  const { ended, onFatal } = endings()
  // By default it would end the process. Files that changed during a long start may have been read before.
  let isReloadAsked = false
  const noteReload = (): void => void (isReloadAsked = true)
  process.on('SIGHUP', noteReload)
  const manager = createServiceManager({
    environment: process.env,
    clock,
    onError: (thrown) => logger.warn({ err: thrown }, 'service manager was not told'),
  })
  process.on('SIGQUIT', () => writeDiagnosticReport({ reportFolder, logger, clock }))
  manager.starting()
  const cancelEnd = endLongStart({ ended, logger, clock })
  // What keeps the process alive must not outlive a start that failed.
  const service = await start(onFatal, manager)
    .catch((thrown: unknown) => beforeAnotherStart(thrown, { ended, manager, logger, clock }))
    .finally(() => {
      cancelEnd()
      manager.stop()
    })
  if (service === null) return
  const reload = (): void => service.reload()
  process.on('SIGHUP', reload)
  if (isReloadAsked) reload()
  logger.info('ready')
  manager.ready()
  manager.startStatus(() => service.describe())
  manager.startWatchdog(() => service.isAlive())
  const ending = await ended
  process.off('SIGHUP', reload)
  manager.stop()
  manager.stopping()
  if (ending.kind === 'signal') logger.info({ signal: ending.signal }, 'stopping')
  else logger.error({ err: ending.reason }, 'fatal')
  // The next start finds the same as after a kill.
  const endAtOnce = (): never => {
    logger.error('not stopped in time')
    endProcess(EXIT.failed)
  }
  const isBroken = ending.kind === 'fatal' && !(ending.reason instanceof RestartNeeded)
  const cancel = clock.after(isBroken ? LONGEST_STOP_AFTER_FATAL : LONGEST_STOP, endAtOnce)
  await service.stop()
  cancel()
  logger.info('stopped')
  setTimeout(endProcess, LONGEST_END, ending.kind === 'fatal' ? EXIT.failed : EXIT.done).unref()
  if (ending.kind === 'fatal') {
    throw new ProcessExit(EXIT.failed, `sternpost: ${errorText(ending.reason)}`, { cause: ending.reason })
  }
}

/** Whatever its threads do: process.exit waits until each has left its call of SQLite or the system. */
function endProcess(exitCode: number): never {
  // Another program takes the place of this one, and ends.
  process.execve?.('/bin/sh', ['sh', '-c', `exit ${exitCode}`])
  process.exit(exitCode)
}

/** A service manager that stops a server during a long start would else wait in vain, and kill it. Returns its end. */
function endLongStart({ ended, logger, clock }: Pick<FailedStart, 'ended' | 'logger' | 'clock'>): () => void {
  let cancel = (): void => {}
  let isOver = false
  void ended.then((ending) => {
    if (isOver || ending.kind === 'fatal') return
    cancel = clock.after(LONGEST_START_AFTER_SIGNAL, () => {
      logger.warn({ signal: ending.signal }, 'stopped during the start')
      endProcess(EXIT.done)
    })
  })
  return () => {
    isOver = true
    cancel()
  }
}

interface FailedStart extends Pick<RunServiceOptions, 'logger' | 'clock'> {
  ended: Promise<Ending>
  manager: ServiceManager
}

/**
 * A start that failed for what may pass by itself (a database away, a disk full, a port taken) ends late under a service
 * manager, which would else give up after a few. Throws the reason; null: it was stopped meanwhile.
 */
async function beforeAnotherStart(thrown: unknown, { ended, manager, logger, clock }: FailedStart): Promise<null> {
  const mayPass = thrown instanceof ProcessExit && [EXIT.disk, EXIT.tryAgain].some((code) => code === thrown.exitCode)
  if (!mayPass || !manager.isManaged) throw thrown
  logger.warn({ problem: thrown.message }, 'not started; tried again in a minute')
  manager.say(`not started, tried again in a minute: ${thrown.message}`)
  const { promise: isOver, resolve } = Promise.withResolvers<null>()
  const cancel = clock.after(WAIT_FOR_ANOTHER_START, () => resolve(null))
  const ending = await Promise.race([ended, isOver])
  cancel()
  if (ending?.kind === 'signal') return null
  throw thrown
}

function endings(): { ended: Promise<Ending>; onFatal: (reason: Error) => void } {
  const { promise: ended, resolve } = Promise.withResolvers<Ending>()
  let interrupts = 0
  // A log that nobody reads any more: the work is finished, and the manager starts us anew with another one.
  process.stdout.on('error', (reason) => resolve({ kind: 'fatal', reason }))
  process.on('SIGTERM', () => resolve({ kind: 'signal', signal: 'SIGTERM' }))
  process.on('SIGINT', () => {
    interrupts += 1
    if (interrupts > 1) process.exit(EXIT.interrupted)
    resolve({ kind: 'signal', signal: 'SIGINT' })
  })
  return { ended, onFatal: (reason) => resolve({ kind: 'fatal', reason }) }
}

/**
 * Stacks, memory, handles and threads of the process (Node.js, "Diagnostic report"), without the environment, which may
 * name secrets: each thread has its own, and Node's own option leaves out that of the main thread alone.
 */
function writeDiagnosticReport({ reportFolder, logger, clock }: Omit<RunServiceOptions, 'start'>): void {
  const withoutEnvironment = (name: string, value: unknown): unknown =>
    name === 'environmentVariables' ? undefined : value
  // The types do not know of it.
  Object.assign(process.report, { excludeNetwork: true })
  const file = join(reportFolder, `report-${new Date(clock.now()).toISOString().replaceAll(':', '-')}.json`)
  try {
    writeFileSync(file, JSON.stringify(process.report.getReport(), withoutEnvironment, 2))
    logger.info({ file }, 'diagnostic report written')
  } catch (thrown) {
    logger.error({ err: thrown }, 'diagnostic report not written')
  }
}
