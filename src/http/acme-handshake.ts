/**
 * Proofs in a handshake (tls-alpn-01, RFC 8737): an authority that asks for `acme-tls/1` gets the certificate that holds
 * the proof, everybody else the usual one. Only while a proof is open is the first message of a connection looked at.
 */
import type { Server, Socket } from 'node:net'
import { createSecureContext, createServer as createTlsServer } from 'node:tls'
import { SECOND } from '../base/clock.ts'
import type { KeyPair } from '../base/service/server-certificates.ts'

/** What is answered while an authority looks. */
export interface AcmeChallenges {
  /** token -> what port 80 answers (RFC 8555 §8.3). */
  tokens: ReadonlyMap<string, string>
  /** name -> certificate that holds the proof. */
  handshakes: ReadonlyMap<string, KeyPair>
}

const PROTOCOL = 'acme-tls/1'
/** As a ClientHello lists it (RFC 7301 §3.1): its length before it. */
const OFFERED = Buffer.concat([Buffer.of(PROTOCOL.length), Buffer.from(PROTOCOL)])
/** Whoever says nothing is the usual server's, which waits for him with its own patience. */
const MOST_WAIT = SECOND
const MOST_HANDSHAKE = 10 * SECOND

export function answerAcmeHandshakes(server: Server, handshakes: AcmeChallenges['handshakes']): void {
  const usual = server.listeners('connection')
  const prover = createTlsServer(
    {
      ALPNProtocols: [PROTOCOL],
      handshakeTimeout: MOST_HANDSHAKE,
      SNICallback(name, done) {
        const pair = handshakes.get(name.toLowerCase())
        if (pair === undefined) done(new Error(`no proof for ${name}`))
        else done(null, createSecureContext(pair))
      },
    },
    (socket) => socket.destroySoon(),
  )
  prover.on('tlsClientError', (_error, socket) => socket.destroy())
  server.removeAllListeners('connection')
  server.on('connection', (socket: Socket) => {
    const pass = (): void => {
      for (const listener of usual) listener.call(server, socket)
    }
    if (handshakes.size === 0) return pass()
    const decide = (): void => {
      clearTimeout(timer)
      socket.removeListener('readable', decide)
      socket.removeListener('error', ignore)
      const hello = socket.read() as Buffer | null
      if (hello !== null) socket.unshift(hello)
      if (hello?.includes(OFFERED) === true) prover.emit('connection', socket)
      else pass()
    }
    const timer = setTimeout(decide, MOST_WAIT)
    socket.on('error', ignore)
    socket.once('readable', decide)
  })
}

/** It is told again, to whom the connection is handed. */
function ignore(): void {}
