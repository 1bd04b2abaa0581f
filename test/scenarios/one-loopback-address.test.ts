/**
 * The sandbox where loopback is one address, as on macOS: the story is in `one-loopback-address.ts`, which runs in a
 * network namespace.
 */
import { namespaceCommand, runInNamespace } from '../support/network-namespace.ts'

const command = namespaceCommand()
if (command === null) {
  const { default: t } = await import('tap')
  const skip = 'no network namespace can be made here: needs root and iproute2'
  t.test('the sandbox sends where loopback is one address', { skip }, async () => {})
} else {
  process.exitCode = await runInNamespace(command, new URL('./one-loopback-address.ts', import.meta.url))
}
