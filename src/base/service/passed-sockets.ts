/**
 * Sockets that a service manager opened for us (systemd/README.md "The unit"; sd_listen_fds(3)). A listener for one
 * address never takes a socket for more than that: what is meant for loopback would be open to everybody. Never throws:
 * a descriptor that is no listening TCP socket is one that nobody wants.
 */
import { closeSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { canonicalIp } from '../ip-address.ts'

export type PassedSockets = ReturnType<typeof receiveSockets>

interface Listening {
  probe: Server
  address: string
  port: number
  /** Connected before it was taken. */
  early: Socket[]
}

interface Descriptor {
  number: number
  /** null: no listening TCP socket; it is closed already. */
  found: Listening | null
}

const FIRST_DESCRIPTOR = 3
const VARIABLES = ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']
const WILDCARDS = ['::', '0.0.0.0']
const EVERY_ADDRESS = '*'

/** Takes the variables out of `environment`, so that no child believes the sockets to be its own. */
export function receiveSockets(environment: NodeJS.ProcessEnv, processId: number) {
  const isForUs = environment['LISTEN_PID'] === String(processId)
  const count = isForUs ? Number(environment['LISTEN_FDS'] ?? 0) : 0
  for (const name of VARIABLES) delete environment[name]
  let descriptors: Descriptor[] | undefined
  const all = (): Descriptor[] => {
    const numbers = Array.from({ length: Number.isInteger(count) && count > 0 ? count : 0 })
    return (descriptors ??= numbers.map((_, index) => lookAt(FIRST_DESCRIPTOR + index)))
  }

  return {
    /**
     * The one for this address and port, or undefined; nobody else gets it any more. `handle` is given to `listen` of a
     * server, which then has the socket; `handOver` gives that server what was connected before it listened.
     */
    take(address: string, port: number) {
      const ofPort = all().filter(({ found }) => found?.port === port)
      const wanted = plainAddress(address)
      const taken =
        ofPort.find(({ found }) => found?.address === wanted) ?? (wanted === EVERY_ADDRESS ? ofPort[0] : undefined)
      if (taken === undefined || taken.found === null) return undefined
      descriptors = all().filter((each) => each !== taken)
      const { probe, early } = taken.found
      return { handle: probe, handOver: (server: Server) => passOn(probe, early, server) }
    },
    /** There is one for this port that everybody reaches: no other socket of this port can be opened. */
    isOpenToAll: (port: number): boolean =>
      all().some(({ found }) => found?.port === port && found.address === EVERY_ADDRESS),
    /** Closes those that nobody took, and says what they are: `port 465 of [::]`. */
    closeRest(): string[] {
      const rest = all()
      descriptors = []
      return rest.map(close)
    },
  }
}

/**
 * Node tells address and port of a socket only once it listens: connections that come meanwhile are kept. What is of no
 * use is closed here and now: later the number may be that of another file.
 */
function lookAt(number: number): Descriptor {
  const early: Socket[] = []
  const probe = createServer({ pauseOnConnect: true }, (socket) => early.push(socket))
  // A socket that does not listen: Node closes it.
  probe.on('error', () => {})
  try {
    probe.listen({ fd: number })
  } catch {
    // Node listens on streams alone; a datagram socket or a file is refused at once.
    closeQuietly(number)
    return { number, found: null }
  }
  const bound = probe.address()
  if (typeof bound === 'object' && bound !== null) {
    return { number, found: { probe, address: plainAddress(bound.address), port: bound.port, early } }
  }
  // A Unix socket.
  if (probe.listening) probe.close()
  return { number, found: null }
}

function passOn(probe: Server, early: Socket[], server: Server): void {
  probe.removeAllListeners('connection')
  for (const socket of early.splice(0)) {
    server.emit('connection', socket)
    socket.resume()
  }
}

function close({ number, found }: Descriptor): string {
  if (found === null) return `descriptor ${number}, which is no listening TCP socket`
  for (const socket of found.early) socket.destroy()
  found.probe.close()
  return `port ${found.port} of ${found.address}`
}

function closeQuietly(number: number): void {
  try {
    closeSync(number)
  } catch {
    // It never was there.
  }
}

function plainAddress(address: string): string {
  return WILDCARDS.includes(address) ? EVERY_ADDRESS : (canonicalIp(address) ?? address)
}
