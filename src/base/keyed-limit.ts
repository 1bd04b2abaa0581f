/**
 * At most N things at once for each key, e.g. webhook posts per endpoint. Never waits and never throws: the caller asks
 * how many are free, takes them, and gives each one back.
 */
export function createKeyedLimit(limit: number) {
  const inUse = new Map<string, number>()
  return {
    free: (key: string): number => limit - (inUse.get(key) ?? 0),
    take: (key: string): void => void inUse.set(key, (inUse.get(key) ?? 0) + 1),
    release(key: string): void {
      const left = (inUse.get(key) ?? 0) - 1
      if (left > 0) inUse.set(key, left)
      else inUse.delete(key)
    },
    /** How many are taken, for the keys that have any. */
    counts: (): Record<string, number> => Object.fromEntries(inUse),
  }
}
