/**
 * Makes a server listen, on a socket that the service manager passed on, else on one of its own. Failures are
 * ProcessExit with one line that names the setting: 75 for a port that is taken, or an address that this machine does not
 * have yet; 78 for one that cannot be used at all.
 */
import { once } from 'node:events'
import type { ListenOptions, Server } from 'node:net'
import { errorCode, errorText, EXIT, ProcessExit } from '../errors.ts'
import type { PassedSockets } from './passed-sockets.ts'

export interface Port {
  /** An IP, or `*` for every address of both families. */
  address: string
  /** 0: any free one. */
  port: number
}

const FIRST_FREE_PORT = 1024

interface PortPlace {
  /** Where the port stands, as in `listen.http`. */
  setting: string
  /** Left out: there is no service manager. */
  passed?: PassedSockets | undefined
}

/** Returns the port that was bound. */
export async function openPort(server: Server, port: Port, { setting, passed }: PortPlace): Promise<number> {
  const socket = passed?.take(port.address, port.port)
  if (socket === undefined && passed?.isOpenToAll(port.port) === true) throw tooWide(port, setting)
  // Without a host Node takes `::` for both families, or 0.0.0.0 on a machine without IPv6.
  const own = port.address === '*' ? { port: port.port } : { port: port.port, host: port.address }
  try {
    await listen(server, socket?.handle ?? own)
    socket?.handOver(server)
  } catch (thrown) {
    throw explain(thrown, port, setting)
  }
  const bound = server.address()
  return typeof bound === 'object' && bound !== null ? bound.port : port.port
}

/** Rejects with the system's error. */
export async function listen(server: Server, options: ListenOptions | Server): Promise<void> {
  server.listen(options)
  await once(server, 'listening')
}

/** Taking it would open to everybody what is meant for one address. */
function tooWide({ address, port }: Port, setting: string): ProcessExit {
  const line = `ListenStream=${address.includes(':') ? `[${address}]` : address}:${port}`
  const fix = `replace the line "ListenStream=${port}" in sternpost.socket by "${line}", or set the address to "*"`
  return new ProcessExit(
    EXIT.configuration,
    `${setting}: port ${port} of address ${address} was opened on every address: ${fix}`,
  )
}

function explain(thrown: unknown, { address, port }: Port, setting: string): ProcessExit {
  const place = `${setting}: port ${port} of address ${address}`
  const code = errorCode(thrown)
  if (code === 'EADDRINUSE') {
    return new ProcessExit(EXIT.tryAgain, `${place} is taken by another process`, { cause: thrown })
  }
  // A machine that boots may get it later: one of IPv6 is checked for a second, a tunnel comes up behind us.
  if (code === 'EADDRNOTAVAIL') {
    return new ProcessExit(
      EXIT.tryAgain,
      `${place}: this machine does not have the address; correct it, or wait until it has`,
      { cause: thrown },
    )
  }
  if (code === 'EACCES' && port < FIRST_FREE_PORT) {
    const fix = `add the line "ListenStream=${port}" to sternpost.socket, or in a container the capability NET_BIND_SERVICE`
    return new ProcessExit(EXIT.configuration, `${place} may not be opened by this user: ${fix}`, { cause: thrown })
  }
  return new ProcessExit(EXIT.configuration, `${place} cannot be opened: ${errorText(thrown)}`, { cause: thrown })
}
