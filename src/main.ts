/**
 * The process: gives the words of the command line to the commands, with the functions that run a server, and ends with
 * their exit code. A defect (an error that nobody caught) is printed and ends the process with 1: the service manager
 * starts it anew and the store recovers as after a kill; carrying on could do harm.
 */
import { constants } from 'node:os'
import { errorCode, EXIT } from './base/errors.ts'
import { packageVersion } from './base/package-version.ts'
import { printProblem } from './base/logger.ts'

/** As a shell says it. */
const ENDED_BY_SIGNAL = 128

for (const kind of ['uncaughtException', 'unhandledRejection'] as const) {
  process.on(kind, (thrown: unknown) => {
    const text = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown)
    printProblem(`sternpost: ${kind}: ${text}\n`)
    process.exit(EXIT.failed)
  })
}

// The reader has gone (`sternpost … | head`): no defect, and nothing to say. What else keeps a result from being written,
// such as a full disk, is said. A server takes both as a reason to stop (run-service.ts).
process.stdout.on('error', (error) => {
  const isDisk = errorCode(error) !== 'EPIPE'
  // Each piece that is written may fail.
  if (isDisk && process.exitCode !== EXIT.disk) printProblem(`sternpost: standard output: ${error.message}\n`)
  process.exitCode = isDisk ? EXIT.disk : EXIT.failed
})

// To load the rest takes a second. By default the signal that reloads a server would end it meanwhile, and one that ends
// it would be lost in the first process of a container.
if (process.argv[2] === 'serve') process.on('SIGHUP', () => {})
if (process.pid === 1) {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (process.listenerCount(signal) === 1) process.exit(ENDED_BY_SIGNAL + constants.signals[signal])
    })
  }
}

const { runCommandLine } = await import('./commands/command-line.ts')
// What runs a server is most of the program, and every other verb does without.
const loadStarters = async () => (await import('./starters.ts')).starters
process.exitCode = await runCommandLine(process.argv.slice(2), packageVersion(), loadStarters)
