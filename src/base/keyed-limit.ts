/**
 * At most N things at once for each key, e.g. webhook posts per endpoint. Never waits and never throws: the caller asks
 * how many are free, takes them, and gives each one back.
 */
interface KeyedLimit {
  free(key: string): number
  take(key: string): void
  release(key: string): void
  /** How many are taken, for the keys that have any. */
  counts(): Record<string, number>
}

export function createKeyedLimit(limit: number): KeyedLimit {
  const inUse = new Map<string, number>()
  return {
    free: (key) => limit - (inUse.get(key) ?? 0),
    take: (key) => void inUse.set(key, (inUse.get(key) ?? 0) + 1),
    release(key) {
      const left = (inUse.get(key) ?? 0) - 1
      if (left > 0) inUse.set(key, left)
      else inUse.delete(key)
    },
    counts: () => Object.fromEntries(inUse),
  }
}
