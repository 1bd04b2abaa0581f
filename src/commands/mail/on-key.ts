/**
 * Single keys of a terminal, without the enter key. Does nothing where standard input is no terminal.
 */
const CONTROL_C = '\u0003'

/** Gives the function that ends it and leaves the terminal as it was. */
export function onKey(key: string, action: () => void): () => void {
  const { stdin } = process
  if (!stdin.isTTY) return () => undefined
  const listen = (bytes: Buffer): void => {
    for (const pressed of bytes.toString('utf8')) {
      if (pressed === key) action()
      // In this mode the terminal does not make a signal of it.
      if (pressed === CONTROL_C) process.kill(process.pid, 'SIGINT')
    }
  }
  stdin.setRawMode(true)
  stdin.on('data', listen)
  return () => {
    stdin.off('data', listen)
    stdin.setRawMode(false)
    stdin.pause()
  }
}
