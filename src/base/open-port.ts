/**
 * Makes a server listen.
 *
 * Failures of a port are ProcessExit with one clear line that names the setting: 75 for one that is taken, 78 for an
 * address or port that cannot be used at all (operations.md 5.4).
 */
import type { ListenOptions, Server } from 'node:net'
import { errorCode, errorText, EXIT, ProcessExit } from './errors.ts'

export interface Port {
  /** An IP, or `*` for every address of both families. */
  address: string
  /** 0: any free one. */
  port: number
}

const FIRST_FREE_PORT = 1024

/** Returns the port that was bound. `setting` names where it stands, as in `listen.http`. */
export async function openPort(server: Server, port: Port, setting: string): Promise<number> {
  try {
    await listen(server, listenOptions(port))
  } catch (thrown) {
    throw explain(thrown, port, setting)
  }
  const bound = server.address()
  return typeof bound === 'object' && bound !== null ? bound.port : port.port
}

function listenOptions({ address, port }: Port): ListenOptions {
  // Without a host Node takes `::` for both families, or 0.0.0.0 on a machine without IPv6.
  return address === '*' ? { port } : { port, host: address }
}

/** Rejects with the system's error. */
export function listen(server: Server, options: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(options, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

function explain(thrown: unknown, { address, port }: Port, setting: string): ProcessExit {
  const place = `${setting}: port ${port} of address ${address}`
  const code = errorCode(thrown)
  if (code === 'EADDRINUSE') {
    return new ProcessExit(EXIT.tryAgain, `${place} is taken by another process`, { cause: thrown })
  }
  if (code === 'EACCES' && port < FIRST_FREE_PORT) {
    const fix = `add the line "ListenStream=${port}" to posthorn.socket`
    return new ProcessExit(EXIT.configuration, `${place} may not be opened by this user: ${fix}`, { cause: thrown })
  }
  return new ProcessExit(EXIT.configuration, `${place} cannot be opened: ${errorText(thrown)}`, { cause: thrown })
}
