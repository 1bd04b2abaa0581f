/**
 * Runs simulated worlds, one for each seed, on all cores: `npm run simulate -- --seeds 1000`.
 *
 *   --seeds N      so many worlds (100)
 *   --from N       the first seed; left out, a new one for each run
 *   --seed N       this one world, with its story
 *   --until-found  ends with the first violation, in its first form
 *   --planted      plants one fault after the other into a copy of the code, and runs until each is found
 *   --fault TEXT   of these, only those whose name has this text
 *
 * A violation is told with its seed, what did not hold, and the shortest story that leads there. Exit 1 when there was
 * one, 2 for options that cannot be read.
 */
import { fork, type ChildProcess } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { plantAll } from './plant.ts'
import { shorten } from './shorten.ts'
import { storyOf, tell } from './story.ts'
import { runStory } from './world.ts'

interface Totals {
  worlds: number
  events: number
  messages: number
  delivered: number
  givenBack: number
}

type Told = { kind: 'ran'; totals: Totals } | { kind: 'violation'; seed: number; text: string }

interface Part {
  from: number
  step: number
  seeds: number
  /** It ends with the first violation, which is told as it is. */
  isUntilFound: boolean
}

const SEEDS = 100
/** Seeds of new runs are drawn below this. */
const HIGHEST_SEED = 1_000_000_000
/** Worlds between two reports to the parent. */
const REPORT_EVERY = 20
const PROGRESS_EVERY = 10_000

const NOTHING: Totals = { worlds: 0, events: 0, messages: 0, delivered: 0, givenBack: 0 }

async function runPart({ from, step, seeds, isUntilFound }: Part, say: (told: Told) => void): Promise<void> {
  let totals = NOTHING
  for (let index = 0; index < seeds; index++) {
    const story = storyOf(from + index * step)
    const run = await runStory(story)
    totals = addRun(totals, run)
    if (run.violation !== null) {
      const shortest = isUntilFound ? story : await shorten(story, run.violation.kind)
      say({ kind: 'violation', seed: story.seed, text: `${run.violation.message}\n${tell(shortest)}` })
    }
    if (totals.worlds === REPORT_EVERY || index === seeds - 1) {
      say({ kind: 'ran', totals })
      totals = NOTHING
    }
  }
}

function addRun(totals: Totals, run: Omit<Totals, 'worlds'>): Totals {
  return {
    worlds: totals.worlds + 1,
    events: totals.events + run.events,
    messages: totals.messages + run.messages,
    delivered: totals.delivered + run.delivered,
    givenBack: totals.givenBack + run.givenBack,
  }
}

function addTotals(one: Totals, other: Totals): Totals {
  return { ...addRun(one, other), worlds: one.worlds + other.worlds }
}

async function runAll({ from, seeds, isUntilFound }: Omit<Part, 'step'>): Promise<number> {
  const workers = Math.min(availableParallelism(), seeds)
  const begunAt = performance.now()
  let totals = NOTHING
  const children: ChildProcess[] = []
  let violations = 0
  let toldAt = begunAt
  const seconds = (): number => Math.round((performance.now() - begunAt) / 1_000)
  process.stdout.write(`${seeds} worlds from seed ${from} on ${workers} cores\n`)
  await Promise.all(
    Array.from(
      { length: workers },
      (_, index) =>
        new Promise<void>((resolve) => {
          const part: Part = {
            from: from + index,
            step: workers,
            seeds: Math.ceil((seeds - index) / workers),
            isUntilFound,
          }
          const worker = fork(fileURLToPath(import.meta.url), ['--part', JSON.stringify(part)])
          children.push(worker)
          worker.on('message', (told: Told) => {
            if (told.kind === 'violation') {
              violations++
              process.stdout.write(`\nVIOLATION of seed ${told.seed}, ${seconds()} s: ${told.text}\n`)
              if (isUntilFound) for (const each of children) each.kill()
              return
            }
            totals = addTotals(totals, told.totals)
            if (performance.now() - toldAt < PROGRESS_EVERY) return
            toldAt = performance.now()
            process.stdout.write(`${totals.worlds} worlds, ${seconds()} s, ${violations} violations\n`)
          })
          worker.on('exit', (code) => {
            if (code !== 0 && !(isUntilFound && violations > 0)) violations++
            resolve()
          })
        }),
    ),
  )
  const { worlds, events, messages, delivered, givenBack } = totals
  process.stdout.write(
    `${worlds} worlds, ${violations} violations, ${seconds()} s: ${messages} messages, ` +
      `${delivered} taken, ${givenBack} given back, ${events} events\n`,
  )
  return violations
}

async function showOne(seed: number): Promise<number> {
  const story = storyOf(seed)
  process.stdout.write(`${tell(story)}\n`)
  const { violation, ...run } = await runStory(story)
  process.stdout.write(`${JSON.stringify(run)}\n${violation?.message ?? 'no violation'}\n`)
  if (violation === null) return 0
  process.stdout.write(`the shortest story:\n${tell(await shorten(story, violation.kind))}\n`)
  return 1
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seeds: { type: 'string', default: String(SEEDS) },
      from: { type: 'string' },
      seed: { type: 'string' },
      'until-found': { type: 'boolean', default: false },
      part: { type: 'string' },
      planted: { type: 'boolean', default: false },
      fault: { type: 'string' },
    },
  })
  if (values.part !== undefined) {
    await runPart(JSON.parse(values.part) as Part, (told) => void process.send?.(told))
    process.disconnect()
    return 0
  }
  if (values.seed !== undefined) return showOne(Number(values.seed))
  const from = values.from === undefined ? Math.floor(Math.random() * HIGHEST_SEED) : Number(values.from)
  if (values.planted) return plantAll(from, values.fault)
  return (await runAll({ from, seeds: Number(values.seeds), isUntilFound: values['until-found'] })) === 0 ? 0 : 1
}

main().then(
  (code) => {
    process.exitCode = code
  },
  (thrown: unknown) => {
    process.stderr.write(`${thrown instanceof Error ? thrown.message : String(thrown)}\n`)
    process.exitCode = 2
  },
)
