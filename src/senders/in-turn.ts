/**
 * Work on one thing at a time, by key: reads and writes of one domain that belong together are not mixed with others.
 *
 * Each piece starts when the one before has ended, well or not; its result and its error are its caller's.
 */
export type InTurn = <Result>(key: string, work: () => Promise<Result>) => Promise<Result>

export function createInTurn(): InTurn {
  const last = new Map<string, Promise<unknown>>()
  return async (key, work) => {
    const before = last.get(key)
    const running = before === undefined ? work() : before.then(work, work)
    last.set(key, running)
    try {
      return await running
    } finally {
      if (last.get(key) === running) last.delete(key)
    }
  }
}
