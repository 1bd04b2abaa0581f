/**
 * The configuration that is in force: parts that follow a reload read it at each use, and are told when it changes.
 *
 * A change is all or nothing: when one of the listeners cannot take the new one over, every listener is told once more
 * with the old one in force, and `replace` rejects with its reason. Changes come one after the other.
 */
import type { Configuration } from './load-configuration.ts'

export interface LiveConfiguration {
  current(): Configuration
  /** Called, in the order of registration, when `current` gives another one. */
  onChange(listener: () => void | Promise<void>): void
}

export interface ReplaceableConfiguration extends LiveConfiguration {
  replace(next: Configuration): Promise<void>
  /** Starts at 1, one more for each change. */
  revision(): number
}

export function createLiveConfiguration(first: Configuration): ReplaceableConfiguration {
  const listeners: (() => void | Promise<void>)[] = []
  let current = first
  let revision = 1

  async function tellAll(): Promise<void> {
    for (const listener of listeners) await listener()
  }

  return {
    current: () => current,
    onChange(listener) {
      listeners.push(listener)
    },
    revision: () => revision,
    async replace(next) {
      const before = current
      current = next
      try {
        await tellAll()
      } catch (thrown) {
        current = before
        await tellAll()
        throw thrown
      }
      revision += 1
    },
  }
}
