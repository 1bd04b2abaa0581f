/**
 * Which problems are new and which are solved, between what the operator was told and what a run found
 * (health/README.md "Checks"). Pure.
 */
import type { HealthFinding } from './checks/finding.ts'
import type { ToldProblem } from './kept-health.ts'

interface HealthChange {
  problems: HealthFinding[]
  solved: ToldProblem[]
  /** What the operator knows once this was told. */
  told: Record<string, ToldProblem>
}

export function healthChange(
  told: Readonly<Record<string, ToldProblem>>,
  before: readonly HealthFinding[],
  now: readonly HealthFinding[],
): HealthChange {
  const earlier = new Set(before.map(problemKey))
  const current = now.filter(({ result }) => result === 'fail' || result === 'warn')
  const problems = current.filter((finding) => {
    const key = problemKey(finding)
    return !Object.hasOwn(told, key) && (finding.result === 'fail' || earlier.has(key))
  })
  const open = new Set(current.map(thingOf))
  const skipped = new Set(now.filter(({ result }) => result === 'skip').map(thingOf))
  const found = new Set(current.map(problemKey))
  const looked = Object.entries(told).filter(([, problem]) => !skipped.has(thingOf(problem)))
  const solved = looked.filter(([, problem]) => !open.has(thingOf(problem)))
  const gone = new Set(looked.map(([key]) => key).filter((key) => !found.has(key)))
  const kept = Object.entries(told).filter(([key]) => !gone.has(key))
  const added = problems.map((finding): [string, ToldProblem] => [problemKey(finding), toldOf(finding)])
  return { problems, solved: solved.map(([, problem]) => problem), told: Object.fromEntries([...kept, ...added]) }
}

/** The fix tells two problems of one thing apart, such as two blocklists; what was seen may vary between two runs. */
function problemKey({ result, check, subject, fix }: HealthFinding): string {
  return JSON.stringify([result, check, subject, fix])
}

export function thingOf({ check, subject }: Pick<HealthFinding, 'check' | 'subject'>): string {
  return JSON.stringify([check, subject])
}

function toldOf({ check, subject, seen }: HealthFinding): ToldProblem {
  return { check, subject, seen }
}
