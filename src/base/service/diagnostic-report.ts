/**
 * A report on the state of the process for whoever has to find out why it does what it does: stacks, memory, handles of
 * the event loop, all threads (Node.js, "Diagnostic report"). It holds no environment, which may name secrets, and
 * looks up no names.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Returns the path of the new file in `folder`. Throws the system's error when it cannot be written. */
export function writeDiagnosticReport(folder: string, now: number): string {
  // The types do not know of it.
  Object.assign(process.report, { excludeNetwork: true })
  const file = join(folder, `report-${new Date(now).toISOString().replaceAll(':', '-')}.json`)
  writeFileSync(file, JSON.stringify(process.report.getReport(), withoutEnvironment, 2))
  return file
}

/** Each thread has its own; Node's own option leaves out that of the main thread alone. */
function withoutEnvironment(name: string, value: unknown): unknown {
  return name === 'environmentVariables' ? undefined : value
}
