/**
 * Bytes that come in pieces, in one block of memory that grows where it is: pieces of single bytes, kept as they come,
 * would take a hundred times their size, and a block that is copied when it grows keeps the thread busy. Of a long one
 * `limit` bytes of addresses are reserved, and only what has come takes memory. Never throws.
 */

/** Most are shorter: they need no addresses. */
const FIRST_CAPACITY = 64 * 1024
/** It doubles up to there. */
const LARGEST_STEP = 1024 * 1024

/** `grants` is asked before each growth; after one that was not granted, nothing is kept. */
export function createGrowingBuffer(limit: number, grants: (moreBytes: number) => boolean = () => true) {
  let memory = new ArrayBuffer(0)
  let length = 0
  let isFull = false

  const drop = (): void => {
    memory = new ArrayBuffer(0)
    length = 0
  }
  const grow = (needed: number): void => {
    const step = Math.min(Math.max(memory.byteLength, FIRST_CAPACITY), LARGEST_STEP)
    const capacity = Math.min(limit, Math.max(needed, memory.byteLength + step))
    isFull = !grants(capacity - memory.byteLength)
    if (isFull) return drop()
    if (memory.resizable) memory.resize(capacity)
    else memory = withRoom(memory, length, capacity, limit)
  }

  return {
    /** Up to the limit. */
    add(piece: Buffer): void {
      const wanted = Math.min(piece.length, limit - length)
      if (length + wanted > memory.byteLength && !isFull) grow(length + wanted)
      if (isFull) return
      new Uint8Array(memory, length, wanted).set(piece.subarray(0, wanted))
      length += wanted
    },
    /** A growth was not granted. */
    isFull: () => isFull,
    /** What was added; nothing is added afterwards. */
    bytes(): Buffer {
      if (memory.resizable) memory.resize(length)
      return Buffer.from(memory, 0, length)
    },
  }
}

function withRoom(memory: ArrayBuffer, length: number, capacity: number, limit: number): ArrayBuffer {
  const isShort = capacity <= FIRST_CAPACITY
  const larger = isShort ? Buffer.allocUnsafeSlow(capacity).buffer : new ArrayBuffer(capacity, { maxByteLength: limit })
  new Uint8Array(larger).set(new Uint8Array(memory, 0, length))
  return larger
}
