/**
 * The process: gives the words of the command line to the commands, with the functions that run a server, and ends with
 * their exit code. A defect (an error that nobody caught) is printed and ends the process with 1: the service manager
 * starts it anew and the store recovers as after a kill; carrying on could do harm.
 */
import { EXIT } from './base/errors.ts'
import { packageVersion } from './base/package-version.ts'
import { printProblem } from './base/logger.ts'
import { runCommandLine } from './commands/command-line.ts'
import { starters } from './starters.ts'

for (const kind of ['uncaughtException', 'unhandledRejection'] as const) {
  process.on(kind, (thrown: unknown) => {
    const text = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown)
    printProblem(`sternpost: ${kind}: ${text}\n`)
    process.exit(EXIT.failed)
  })
}

// The reader has gone (`sternpost … | head`): no defect. A server takes it as a reason to stop (run-service.ts).
process.stdout.on('error', () => {
  process.exitCode = EXIT.failed
})

process.exitCode = await runCommandLine(process.argv.slice(2), packageVersion(), starters)
