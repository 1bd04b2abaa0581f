/**
 * Frees the memory of a block at once, where the block is all of it: large blocks that are left to the garbage collector
 * pile up, since a thread that has little else to do does not collect. The block, and whatever else looks at its memory,
 * is empty afterwards. Never throws.
 */
export function freeMemory({ buffer, byteLength }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength && byteLength >= LEAST_BYTES) buffer.transfer(0)
}

/** Smaller ones are cheap garbage, and may be the memory that small blocks share. */
const LEAST_BYTES = 16 * 1024
