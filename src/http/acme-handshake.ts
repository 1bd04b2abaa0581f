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
/** Type of a TLS record, and the bytes before its content, the last two of which say its length. */
const HANDSHAKE = 22
const RECORD_HEADER = 5
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
    let hello = Buffer.alloc(0)
    const decide = (): void => {
      clearTimeout(timer)
      socket.removeListener('readable', look)
      socket.removeListener('error', ignore)
      if (hello.length > 0) socket.unshift(hello)
      if (hello.includes(OFFERED)) prover.emit('connection', socket)
      else pass()
    }
    const look = (): void => {
      const piece = socket.read() as Buffer | null
      if (piece !== null) hello = Buffer.concat([hello, piece])
      if (piece === null || isWhole(hello)) decide()
    }
    const timer = setTimeout(decide, MOST_WAIT)
    socket.on('error', ignore)
    socket.on('readable', look)
  })
}

/** False: a TLS record that the network has cut (RFC 8446 §5.1). What is none is nobody's proof. */
function isWhole(hello: Buffer): boolean {
  if (hello[0] !== HANDSHAKE) return true
  return hello.length >= RECORD_HEADER && hello.length >= RECORD_HEADER + hello.readUInt16BE(RECORD_HEADER - 2)
}

/** It is told again, to whom the connection is handed. */
function ignore(): void {}
