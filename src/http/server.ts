/**
 * The HTTP servers: the API on the configured addresses, and for the administrator on a Unix socket.
 *
 * `start` opens all listeners or none and returns the bound ports. `stop` ends in order: no new connections, new
 * requests on kept connections get 503, running requests finish within 10 s, the rest is cut. Limits of heads, bodies
 * and connections are those of src/README.md "Bounds".
 */
import type { Server, ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'
import { SECOND } from '../base/clock.ts'
import type { PassedSockets } from '../base/service/passed-sockets.ts'
import type { ServerCertificates } from '../base/service/server-certificates.ts'
import { within } from '../base/within.ts'
import { createConnectionLimits } from './connection-limits.ts'
import { BODY_READER_DEFAULTS, createBodyReader } from './exchange/body-reader.ts'
import { makeServer, type HttpSettings, type MadeServer, type RequestListener } from './make-server.ts'
import { openAdminSocket, openListener, type HttpListener } from './open-listener.ts'
import { createRequestListeners, type RequestListenersOptions } from './request-listeners.ts'

export interface HttpServersOptions extends Omit<RequestListenersOptions, 'bodies' | 'onRequest' | 'stopping'> {
  settings: HttpSettings
  /** Sockets that are open already. */
  passed?: PassedSockets | undefined
  /** Of the start; left out: those of the settings. */
  certificates?: ServerCertificates | null | undefined
}

export type HttpServers = ReturnType<typeof createHttpServers>

const STOP_MILLISECONDS = 10 * SECOND

export function createHttpServers(options: HttpServersOptions) {
  const { settings, clock, certificates, acmeChallenges } = options
  const { connections, trusted_proxies: trustedProxies } = settings.http
  const { total, per_address: perAddress } = connections
  const limits = createConnectionLimits({ total, perAddress, trustedProxies })
  const bodies = createBodyReader(BODY_READER_DEFAULTS)
  const running = createRunningRequests()
  const made: MadeServer[] = []
  const stopping = new AbortController()
  const requestListeners = createRequestListeners({
    ...options,
    bodies,
    onRequest: running.add,
    stopping: stopping.signal,
  })

  const addServer = (listener: RequestListener, tls: boolean): Server => {
    const added = makeServer(listener, { settings, tls, clock, certificates, acmeChallenges })
    made.push(added)
    return added.server
  }

  const closeAll = (): void => {
    for (const { server } of made) {
      server.close()
      server.closeAllConnections()
    }
    bodies.stop()
    void options.thread.stop()
  }

  return {
    /** For handshakes from now on. */
    setCertificates(certificates: ServerCertificates) {
      for (const each of made) each.setCertificates(certificates)
    },
    /** The bound ports, in the order of `listeners`. */
    async start(listeners: readonly HttpListener[], adminSocket: string | null) {
      try {
        const ports: number[] = []
        for (const listener of listeners) {
          const server = addServer(requestListeners.of(listener), listener.tls)
          server.prependListener('connection', (socket: Socket) => limits.admit(socket))
          ports.push(await openListener(server, listener, options.passed))
        }
        if (adminSocket !== null) await openAdminSocket(addServer(requestListeners.administrator, false), adminSocket)
        return ports
      } catch (thrown) {
        closeAll()
        throw thrown
      }
    },
    async stop() {
      stopping.abort()
      // The close of http.Server would also cut idle connections, on which a request may be on its way: it gets a 503.
      for (const { server } of made) NetServer.prototype.close.call(server)
      await running.finished(STOP_MILLISECONDS)
      closeAll()
    },
  }
}

/** Counts requests from their arrival until their answer is out or the connection is gone. */
interface RunningRequests {
  add(response: ServerResponse): void
  /** Resolves when none is left, or after this time. */
  finished(mostMilliseconds: number): Promise<void>
}

function createRunningRequests(): RunningRequests {
  let count = 0
  let onNone = (): void => {}
  const onClose = (): void => {
    count -= 1
    if (count === 0) onNone()
  }
  return {
    add(response) {
      count += 1
      response.once('close', onClose)
    },
    async finished(mostMilliseconds) {
      if (count > 0) await within(new Promise<void>((resolve) => (onNone = resolve)), mostMilliseconds)
    },
  }
}
