/** Proofs in a handshake: the first message of a connection decides, however the network cuts it. */
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { answerAcmeHandshakes } from '../../src/http/acme-handshake.ts'
import { createTestAuthority } from '../support/test-authority.ts'

const NAME = 'mail.sternpost.test'

async function listen(t: Test, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  return (server.address() as AddressInfo).port
}

/** Sends the first piece of each connection in two, cut behind so many bytes. */
function cutFirst(port: number, bytes: number): Server {
  return createServer((client: Socket) => {
    const upstream = connect({ port, host: '127.0.0.1', noDelay: true })
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      from.on('error', () => to.destroy())
      from.on('close', () => to.destroy())
    }
    upstream.pipe(client)
    client.once('data', async (first: Buffer) => {
      client.pause()
      upstream.write(first.subarray(0, bytes))
      await sleep(50)
      upstream.write(first.subarray(bytes))
      client.pipe(upstream)
    })
  })
}

t.test('a proof is found in a first message that comes in two pieces', async (t) => {
  const authority = createTestAuthority()
  t.teardown(() => authority.close())
  const { chain: cert, key } = authority.issue([NAME])
  let usual = 0
  const server = createServer((socket) => {
    usual += 1
    socket.destroy()
  })
  answerAcmeHandshakes(server, new Map([[NAME, { cert, key }]]))
  const port = await listen(t, server)
  const open = async (bytes: number, protocol: string): Promise<string | false | null> => {
    const cut = await listen(t, cutFirst(port, bytes))
    const options = { servername: NAME, rejectUnauthorized: false, ALPNProtocols: [protocol] }
    const socket = connectTls({ port: cut, host: '127.0.0.1', ...options })
    try {
      await once(socket, 'secureConnect')
      return socket.alpnProtocol
    } catch {
      return null
    } finally {
      socket.destroy()
    }
  }
  for (const bytes of [1, 4, 6, 60]) t.equal(await open(bytes, 'acme-tls/1'), 'acme-tls/1', `cut behind ${bytes}`)
  t.equal(usual, 0)
  t.equal(await open(6, 'http/1.1'), null)
  t.equal(usual, 1, 'all others are passed on')
})
