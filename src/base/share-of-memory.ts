/**
 * How much of the memory one use may have, on a machine or in a container that has little of it: else its mail would
 * end the process, and end it again when it comes back after the start.
 */
import { totalmem } from 'node:os'

/** The program by itself takes more than 200 MiB, and what one use holds is in memory more than once. */
const SHARE = 8

/** `bytes`, or an eighth of what this process may have, where that is less. */
export function shareOfMemory(bytes: number, memory = memoryOfProcess()): number {
  return Math.min(bytes, Math.floor(memory / SHARE))
}

function memoryOfProcess(): number {
  // 0 where the system does not tell.
  return Math.min(totalmem(), process.constrainedMemory() || Infinity)
}
