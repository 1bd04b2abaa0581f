/**
 * Some dozens of simulated worlds: those that failed once, and new ones in each run.
 */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'
import { KEPT_STORIES } from './kept-stories.ts'
import { PLANTED_FAULTS } from './planted-faults.ts'
import { storyOf, tell } from './story.ts'
import { runStory } from './world.ts'

const run = promisify(execFile)
const MAIN = fileURLToPath(new URL('./main.ts', import.meta.url))
const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const NEW_WORLDS = process.env['TEST_SCALE'] === 'full' ? 10_000 : 60

t.test('one seed is one run, to the byte', async (t) => {
  const first = await runStory(storyOf(1))
  await runStory(storyOf(2))
  t.strictSame(await runStory(storyOf(1)), first)
  t.ok(first.messages > 0 && first.delivered > 0, 'mail was sent in it')
})

for (const { found, story } of KEPT_STORIES) {
  t.test(`failed once: ${found}`, async (t) => {
    const { violation } = await runStory(story)
    t.equal(violation, null, 'nothing is violated any more', { story: tell(story) })
  })
}

t.test('the faults that are planted still fit into the code', async (t) => {
  t.ok(PLANTED_FAULTS.length >= 10)
  for (const { name, edits } of PLANTED_FAULTS) {
    for (const { file, from } of edits) t.equal(readFileSync(join(ROOT, file), 'utf8').split(from).length, 2, name)
  }
})

t.test('new worlds hold what has to hold', async (t) => {
  const { stdout } = await run(process.execPath, [MAIN, '--seeds', String(NEW_WORLDS)], { maxBuffer: 2 ** 26 }).catch(
    (failed: { stdout?: string }) => ({ stdout: failed.stdout ?? String(failed) }),
  )
  t.match(stdout, `${NEW_WORLDS} worlds, 0 violations`)
})
