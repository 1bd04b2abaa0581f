/**
 * The database: is the file sound, and does a commit take as long as a disk needs (health/README.md "Checks":
 * database)? Errors of the store are findings.
 */
import type { QuickCheck } from '../../store/open/quick-check.ts'
import { checkOf } from './check.ts'
import { byteText, type HealthFinding } from './finding.ts'
import type { DatabaseFacts } from './world.ts'

const DATABASE = checkOf('database', 'The queue, the keys and all history are in this one file.')
const SLOW_COMMIT_MILLISECONDS = 500
/** No disk confirms a write in less: one that seems to has only promised it (test/README.md "Faults"). */
const FALSE_COMMIT_MILLISECONDS = 0.02

export const checkDatabase = DATABASE.onServer(async (server, { configuration }) => {
  const [facts, checked] = await Promise.all([server.database(), server.quickCheck()])
  const { data_dir: folder, storage } = configuration.server
  return [soundness(checked, facts.bytes), ...commits(facts, folder), ...walSize(facts, storage.wal_max)]
})

function soundness({ problem, isUnfinished }: QuickCheck, bytes: number): HealthFinding {
  if (problem !== null) {
    const fix = 'systemctl stop sternpost; sternpost verify; if it says the same: sternpost restore <newest backup>'
    return DATABASE.fail(null, `the quick check says: ${problem}`, fix)
  }
  if (isUnfinished) {
    return DATABASE.skip(null, `the quick check of ${byteText(bytes)} takes too long here: sternpost verify`)
  }
  return DATABASE.ok(null, `the quick check of ${byteText(bytes)} found nothing`)
}

function commits({ commitMilliseconds: mean }: DatabaseFacts, folder: string): HealthFinding[] {
  if (mean === null) return []
  const seen = `a commit takes ${mean.toFixed(2)} ms`
  if (mean > SLOW_COMMIT_MILLISECONDS) {
    return [DATABASE.warn(null, seen, `look at the disk of ${folder}: iostat -x 1; move data_dir to a faster one`)]
  }
  if (mean < FALSE_COMMIT_MILLISECONDS) {
    const fix = `turn off the write cache that lies, or put data_dir on another disk: a power cut would lose mail`
    return [DATABASE.warn(null, `${seen}: this disk confirms before it has written`, fix)]
  }
  return [DATABASE.ok(null, seen)]
}

function walSize({ walBytes }: DatabaseFacts, most: number): HealthFinding[] {
  if (walBytes <= 2 * most) return []
  const fix = 'end what reads the database for long, such as a copy of it that is being made'
  return [DATABASE.warn(null, `the write-ahead log has ${byteText(walBytes)}, more than twice storage.wal_max`, fix)]
}
