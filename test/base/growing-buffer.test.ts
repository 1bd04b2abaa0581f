/**
 * Bytes that come in pieces of any size, and end up in one block.
 */
import t from 'tap'
import { createGrowingBuffer } from '../../src/base/growing-buffer.ts'

const MEBIBYTE = 1024 * 1024

t.test('pieces of any size are put together, up to the limit', async (t) => {
  for (const size of [1, 1_000, 65_536, 65_537, 3 * MEBIBYTE]) {
    const whole = Buffer.alloc(Math.min(4 * MEBIBYTE, size * 100), 'abcdefg')
    const kept = createGrowingBuffer(whole.length - 1)
    for (let at = 0; at < whole.length; at += size) kept.add(whole.subarray(at, at + size))
    const bytes = kept.bytes()
    t.ok(bytes.equals(whole.subarray(0, -1)), `pieces of ${size}`)
    const moved = structuredClone(bytes, { transfer: [bytes.buffer as ArrayBuffer] })
    t.equal(bytes.length, 0)
    t.ok(whole.subarray(0, -1).equals(moved), 'the block can be moved')
  }
  t.equal(createGrowingBuffer(10).bytes().length, 0)
})

t.test('each growth is asked for, and after one that was not granted nothing is kept', async (t) => {
  let granted = 0
  const kept = createGrowingBuffer(10 * MEBIBYTE, (more) => {
    if (granted + more > 3 * MEBIBYTE) return false
    granted += more
    return true
  })
  let added = 0
  while (!kept.isFull()) {
    t.ok(granted <= 2 * added + 64 * 1024, 'little more is taken than has come')
    kept.add(Buffer.alloc(10_000))
    added += kept.isFull() ? 0 : 10_000
  }
  t.ok(added > 2 * MEBIBYTE)
  t.equal(kept.bytes().length, 0)
})
