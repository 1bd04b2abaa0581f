/**
 * The configuration in force: parts that follow a reload read it at each use. A change is all or nothing: when a
 * listener cannot take the new one over, all are told once more with the old one in force, and `replace` rejects with
 * its reason.
 */
import type { Configuration } from './load-configuration.ts'

export type ReplaceableConfiguration = ReturnType<typeof createLiveConfiguration>
export type LiveConfiguration = Pick<ReplaceableConfiguration, 'current' | 'onChange'>

export function createLiveConfiguration(first: Configuration) {
  const listeners: (() => void | Promise<void>)[] = []
  let current = first
  let revision = 1

  async function tellAll(): Promise<void> {
    for (const listener of listeners) await listener()
  }

  return {
    current: (): Configuration => current,
    /** Called, in the order of registration, when `current` gives another one. */
    onChange(listener: () => void | Promise<void>): void {
      listeners.push(listener)
    },
    /** Starts at 1, one more for each change. */
    revision: (): number => revision,
    /** `finish`: what cannot be taken back, behind every listener. */
    async replace(next: Configuration, finish = async (): Promise<void> => {}): Promise<void> {
      const before = current
      current = next
      try {
        await tellAll()
        await finish()
      } catch (thrown) {
        current = before
        await tellAll()
        throw thrown
      }
      revision += 1
    },
  }
}
