/**
 * Files that an administrator names: YAML, secrets, certificates. A named pipe or a device would keep the reader
 * waiting or reading for ever, so only regular files are read, and only up to 10 MiB. Throws an Error with a sentence,
 * or what the system says (with its code).
 */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'

const MOST_BYTES = 10 * 1024 * 1024

export function readRegularFile(file: string): Buffer {
  // Without waiting for somebody at the other end of a pipe.
  const descriptor = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const facts = fstatSync(descriptor)
    if (facts.isDirectory()) throw new Error('is a folder, not a file')
    if (!facts.isFile()) throw new Error('is not a regular file: a pipe, socket or device is not read')
    if (facts.size > MOST_BYTES) throw new Error(`has ${facts.size} bytes; at most ${MOST_BYTES} are read`)
    return readFileSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
