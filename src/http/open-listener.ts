/**
 * Makes a server listen, on an address and port or on a Unix socket. Fails with ProcessExit: 75 for a port that is
 * taken or an address that is not there yet, 78 for one that cannot be used at all.
 */
import { existsSync } from 'node:fs'
import { chmod, lstat, unlink } from 'node:fs/promises'
import { connect, type Server } from 'node:net'
import { dirname } from 'node:path'
import { errorCode, errorText, EXIT, ProcessExit } from '../base/errors.ts'
import { listen, openPort, type Port } from '../base/service/open-port.ts'
import type { PassedSockets } from '../base/service/passed-sockets.ts'
import { shellWord } from '../base/shell-word.ts'

export interface HttpListener extends Port {
  tls: boolean
  /** What is served here; the API needs `api`. */
  serve: readonly string[]
}

/** Owner and group may connect (config/README.md "sternpost.yaml", listen.admin_socket). */
const ADMIN_SOCKET_MODE = 0o660
const ANOTHER_PLACE = 'name another place in sternpost.yaml'

/** Returns the port that was bound. */
export function openListener(server: Server, listener: HttpListener, passed?: PassedSockets): Promise<number> {
  return openPort(server, listener, { setting: 'listen.http', passed })
}

/** A socket file that nobody listens on any more is replaced. */
export async function openAdminSocket(server: Server, path: string): Promise<void> {
  await removeStaleSocket(path)
  try {
    await listen(server, { path })
    await chmod(path, ADMIN_SOCKET_MODE)
  } catch (cause) {
    // For a folder that is not there the system reports "permission denied".
    const folder = dirname(path)
    const problem = existsSync(folder)
      ? errorText(cause)
      : `there is no folder ${folder}; make it (mkdir -p ${shellWord(folder)})`
    const message = `listen.admin_socket: ${path} cannot be opened: ${problem}, or ${ANOTHER_PLACE}`
    throw new ProcessExit(EXIT.configuration, message, { cause })
  }
}

async function removeStaleSocket(path: string): Promise<void> {
  const found = await lstat(path).catch((thrown: unknown) => {
    if (errorCode(thrown) === 'ENOENT') return undefined
    const message = `listen.admin_socket: ${errorText(thrown)}; ${ANOTHER_PLACE}`
    throw new ProcessExit(EXIT.configuration, message, { cause: thrown })
  })
  if (found === undefined) return
  if (!found.isSocket()) {
    const message = `listen.admin_socket: ${path} is there and is no socket; ${ANOTHER_PLACE}, or move it away`
    throw new ProcessExit(EXIT.configuration, message)
  }
  if (await answers(path)) {
    throw new ProcessExit(EXIT.tryAgain, `listen.admin_socket: another server answers at ${path}`)
  }
  await unlink(path)
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path)
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
