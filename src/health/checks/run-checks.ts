/** Runs checks in parallel, each for 15 s at most. Never rejects: a check that does not end, or fails, is a finding. */
import { SECOND } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { verdicts, type HealthFinding } from './finding.ts'
import type { CheckWorld, HealthCheck } from './world.ts'

const MOST_MILLISECONDS = 15 * SECOND
const WHY = 'What is not looked at can be anything.'

/** In the order of the table. */
export async function runChecks(checks: readonly HealthCheck[], world: CheckWorld): Promise<HealthFinding[]> {
  const found = await Promise.all(checks.map((check) => runOne(check, world)))
  return found.flat()
}

async function runOne(check: HealthCheck, world: CheckWorld): Promise<HealthFinding[]> {
  const { id, place } = check
  const { skip, warn } = verdicts(id, WHY)
  if (place === 'server' && world.server === null) {
    return [skip(null, 'the server does not run here, or does not answer')]
  }
  let cancel = (): void => {}
  const late = new Promise<HealthFinding[]>((resolve) => {
    const text = `it did not end within ${MOST_MILLISECONDS / SECOND} s`
    const timer = setTimeout(() => resolve([warn(null, text, `sternpost doctor ${id}`)]), MOST_MILLISECONDS)
    cancel = () => clearTimeout(timer)
  })
  try {
    return await Promise.race([check.run(world), late])
  } catch (thrown) {
    return [warn(null, `the check failed: ${errorText(thrown)}`, `sternpost doctor ${id}; sternpost logs --level warn`)]
  } finally {
    cancel()
  }
}
