/**
 * The TLS handshake on a connection whose host has answered STARTTLS with 220, and the check of who answered. Resolves
 * once and never throws, whatever the certificate is like. No renegotiation; SNI is the host name. Session tickets are
 * kept for hosts whose certificate nothing depends on: where it does, every connection shows it anew. RFC 3207, RFC
 * 6066 §3; delivery/README.md "TLS".
 */
import { isIP, type Socket } from 'node:net'
import { connect, type ConnectionOptions, type SecureContext, type TLSSocket } from 'node:tls'
import { errorText } from '../../base/errors.ts'
import type { TlsFacts } from '../../mail/reply/delivery-outcome.ts'
import { judgePeer, readPeer, type HostTls, type Peer } from '../protocol/host-tls.ts'
import { ignoreLateError } from './smtp-wire.ts'
import { oneLine } from './transcript.ts'

interface StartTlsRequest {
  socket: Socket
  host: string
  tls: HostTls
  secureContext: SecureContext
  timeoutMilliseconds: number
  tickets: TlsTickets
}

/** A resumed session shows no certificate (RFC 8446 §2.2): it is judged by the one it began with. */
export interface TlsTicket {
  session: Buffer
  /** Its own certificate alone: nobody who takes a session up again looks at those above. */
  peer: Peer
}

/** By host. */
export interface TlsTickets {
  get(host: string): TlsTicket | undefined
  set(host: string, ticket: TlsTicket): void
  delete(host: string): void
}

type Encrypted =
  | { kind: 'encrypted'; socket: TLSSocket; facts: TlsFacts; result: string }
  | { kind: 'failed'; reason: string; /** A result type of RFC 8460 §4.3. */ result: string }

export function startTls(request: StartTlsRequest): Promise<Encrypted> {
  const { socket: plain, host, tls, timeoutMilliseconds, tickets } = request
  const usesTickets = tls.kind === 'opportunistic' || tls.kind === 'required'
  const offered = usesTickets ? tickets.get(host) : undefined
  return new Promise((resolve) => {
    const socket = connect({ socket: plain, ...optionsOf(request, offered) })
    let peer: Peer | undefined
    // With TLS 1.2 it comes before the handshake is over.
    let early: Buffer | undefined
    const keepTicket = (session: Buffer): void => {
      if (peer === undefined) early = session
      else tickets.set(host, { session, peer: { ...peer, chain: peer.chain.slice(0, 1) } })
    }
    const finish = (encrypted: Encrypted): void => {
      clearTimeout(timer)
      socket.off('secureConnect', onSecure).off('close', onClose).off('end', onClose).off('error', onError)
      // What follows is the session's, or nobody's.
      if (encrypted.kind === 'failed') {
        socket.on('error', ignoreLateError).destroy()
        // The host may have failed over it.
        if (offered !== undefined) tickets.delete(host)
      }
      resolve(encrypted)
    }
    const fail = (reason: string): void =>
      finish({ kind: 'failed', reason: oneLine(reason), result: 'validation-failure' })
    const onClose = (): void => fail('the host closed the connection in the handshake')
    const onError = (error: Error): void => fail(errorText(error))
    const onSecure = (): void => {
      socket.disableRenegotiation()
      try {
        peer = (socket.isSessionReused() ? offered?.peer : undefined) ?? readPeer(socket)
        if (early !== undefined) keepTicket(early)
        finish(judge(socket, peer, request))
      } catch (thrown) {
        // A certificate that cannot be read ends this connection, not the thread.
        fail(errorText(thrown))
      }
    }
    const timer = setTimeout(() => fail(`no handshake within ${timeoutMilliseconds} ms`), timeoutMilliseconds)
    // The socket below tells its errors through this one.
    plain.on('error', ignoreLateError)
    socket.once('secureConnect', onSecure).on('close', onClose).on('end', onClose).on('error', onError)
    if (usesTickets) socket.on('session', keepTicket)
  })
}

function optionsOf({ host, secureContext }: StartTlsRequest, offered: TlsTicket | undefined): ConnectionOptions {
  return {
    secureContext,
    rejectUnauthorized: false,
    checkServerIdentity: () => undefined,
    // An address literal has no name to ask for.
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(offered === undefined ? {} : { session: offered.session }),
  }
}

function judge(socket: TLSSocket, peer: Peer, { host, tls }: StartTlsRequest): Encrypted {
  const { isAcceptable, isVerified, problem, result } = judgePeer(peer, host, tls, Date.now())
  if (!isAcceptable) return { kind: 'failed', reason: oneLine(problem ?? 'the certificate is not acceptable'), result }
  const { type, id } = tls.policy
  const facts: TlsFacts = {
    protocol: socket.getProtocol() ?? '',
    cipher: socket.getCipher().name,
    fingerprint: peer.chain[0]?.fingerprint256.replaceAll(':', '').toLowerCase() ?? null,
    isVerified,
    policy: id === '' ? type : `${type} ${id}`,
    problem,
  }
  return { kind: 'encrypted', socket, facts, result }
}
