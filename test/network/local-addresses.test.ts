/** Where listeners are reached: one for all addresses at every address of this machine. */
import { networkInterfaces } from 'node:os'
import t from 'tap'
import { listeningAddresses } from '../../src/network/local-addresses.ts'

t.test('a listener for all addresses is reached at those that no file names', async (t) => {
  const present = Object.values(networkInterfaces()).flatMap((each) => each ?? [])
  t.ok(present.length > 0)
  for (const all of ['*', '0.0.0.0', '::']) {
    const reached = listeningAddresses([{ address: '192.0.2.1' }, { address: all }])
    t.ok(reached.includes('192.0.2.1'))
    for (const { address } of present) t.ok(reached.includes(address), `${address} by ${all}`)
  }
  t.strictSame(listeningAddresses([{ address: '192.0.2.1' }]), ['192.0.2.1'])
})
