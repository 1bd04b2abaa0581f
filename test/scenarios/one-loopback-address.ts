/** Run by `one-loopback-address.test.ts`, in a network namespace. */
import { execFileSync } from 'node:child_process'
import t from 'tap'
import { startSandbox } from '../support/sandbox-process.ts'

t.setTimeout(300_000)

t.test('the sandbox sends where loopback is one address, with a Node of the user', async (t) => {
  // Other than 127.0.0.1/8, which would bring 127.0.0.2 and all others along.
  for (const words of ['link set lo up', 'addr flush dev lo', 'addr add 127.0.0.1/32 dev lo'])
    execFileSync('ip', words.split(' '))
  process.env['STERNPOST_NODE'] = process.execPath
  const { ask, list, send } = await startSandbox(t)
  const { data } = (await ask('GET', '/v1/ips')) as { data: { ip: string; bindable: boolean }[] }
  t.same(
    data.filter(({ bindable }) => !bindable).map(({ ip }) => ip),
    [],
    'each IP can be bound',
  )
  await send({ from: 'you@sandbox.test', to: 'ada@dest.test' })
  t.match(await list('/dev/inbox?wait=60s'), [{ to: ['ada@dest.test'] }])
})
