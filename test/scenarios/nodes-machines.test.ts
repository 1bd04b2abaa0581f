/**
 * Nodes on machines of their own, whose egress IPs keepalived moves: the story is in `nodes-machines.ts`, which runs in a
 * network namespace.
 */
import { inMachineRoom, skipWithoutMachines } from '../support/machines.ts'
import { runInNamespace } from '../support/network-namespace.ts'

if (skipWithoutMachines === false) {
  process.exitCode = await runInNamespace(inMachineRoom, new URL('./nodes-machines.ts', import.meta.url))
} else {
  const { default: t } = await import('tap')
  t.test('nodes on machines of their own', { skip: skipWithoutMachines }, async () => {})
}
