/**
 * A memory of what was used last, for limits that are seldom reached: it takes memory as entries come, where an
 * LRUCache with `max` takes the room for all of them at once (about 25 bytes each).
 */
import { LRUCache } from 'lru-cache'

/** `most`: entries; the one that was not used for longest goes first. */
export function recentEntries<Key extends {}, Value extends {}>(most: number): LRUCache<Key, Value> {
  return new LRUCache<Key, Value>({ maxSize: most, sizeCalculation: () => 1 })
}
