/**
 * A memory of what was used last, for limits that are seldom reached: it takes memory as entries come, where an
 * LRUCache with `max` takes the room for all of them at once (about 25 bytes each).
 */
import { LRUCache } from 'lru-cache'

/** What others write, such as records and policies, is mostly much shorter. */
const ENTRY_BYTES = 2_048

/**
 * `most`: entries; the one that was not used for longest goes first. `bytesOf`: of what others may make long; it counts
 * as one entry for each 2 KiB begun, and is not kept when it is as long as all together may be. It is measured when it
 * is set, and another value takes its place.
 */
export function recentEntries<Key extends {}, Value extends {}>(
  most: number,
  bytesOf: (value: Value) => number = () => 1,
): LRUCache<Key, Value> {
  const sizeCalculation = (value: Value): number => Math.max(1, Math.ceil(bytesOf(value) / ENTRY_BYTES))
  return new LRUCache<Key, Value>({ maxSize: most, sizeCalculation })
}
