/**
 * The shortest story that still goes wrong in the same way: things are left out one by one, mail becomes less, limits
 * become those of the files, as long as the violation stays the same kind.
 */
import { SHIPPED, type Story } from './story.ts'
import { runStory } from './world.ts'

/** Runs that are made for one story at most. */
const MOST_RUNS = 200

export async function shorten(story: Story, kind: string): Promise<Story> {
  let shortest = story
  let runs = 0

  async function keepIfItFails(candidate: Story): Promise<boolean> {
    if (runs++ >= MOST_RUNS) return false
    const { violation } = await runStory(candidate)
    if (violation?.kind !== kind) return false
    shortest = candidate
    return true
  }

  for (let index = shortest.items.length - 1; index >= 0; index--) {
    await keepIfItFails({ ...shortest, items: shortest.items.toSpliced(index, 1) })
  }
  for (const [index] of shortest.items.entries()) {
    let isSmaller = true
    while (isSmaller) {
      const item = shortest.items[index]
      if (item?.happening.what !== 'accept' || item.happening.count < 2) break
      const happening = { ...item.happening, count: Math.floor(item.happening.count / 2) }
      isSmaller = await keepIfItFails({ ...shortest, items: shortest.items.with(index, { ...item, happening }) })
    }
  }
  const plain = { ...SHIPPED, threads: 1, turnTime: 0, threadDelay: 0.1, hasWebhook: false }
  for (const [name, value] of Object.entries(plain)) {
    await keepIfItFails({ ...shortest, settings: { ...shortest.settings, [name]: value } })
  }
  return shortest
}
