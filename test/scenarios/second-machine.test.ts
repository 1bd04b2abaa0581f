/**
 * The simple way to a second machine, with SQLite on a volume: the story is in `second-machine.ts`, which runs in a
 * network namespace.
 */
import { inMachineRoom, skipWithoutMachines } from '../support/machines.ts'
import { runInNamespace } from '../support/network-namespace.ts'

if (skipWithoutMachines === false) {
  process.exitCode = await runInNamespace(inMachineRoom, new URL('./second-machine.ts', import.meta.url))
} else {
  const { default: t } = await import('tap')
  t.test('a second machine', { skip: skipWithoutMachines }, async () => {})
}
