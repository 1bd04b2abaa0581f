/**
 * `sternpost doctor` against planted faults: the story is in `doctor-faults.ts`, which runs in a network namespace.
 */
import { namespaceCommand, runInNamespace } from '../support/network-namespace.ts'

const command = namespaceCommand()
if (command === null) {
  const { default: t } = await import('tap')
  const skip = 'no network namespace can be made here: needs root and iproute2'
  t.test('doctor finds planted faults', { skip }, async () => {})
} else {
  process.exitCode = await runInNamespace(command, new URL('./doctor-faults.ts', import.meta.url))
}
