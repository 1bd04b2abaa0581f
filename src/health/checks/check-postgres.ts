/**
 * The server of PostgreSQL: does it keep what it confirms, also when another one takes its place, and does nothing grow
 * that would slow it (health/README.md "Checks": database)? A server that does not answer is a finding.
 */
import { MINUTE, SECOND } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { postgresFacts, type PostgresFacts } from '../../store/open/server-facts.ts'
import { ageText, type HealthFinding, type Verdicts } from './check.ts'

const OLDEST_VERSION = 150_000
const MANY_DEAD_ROWS = 100_000
const OLD_SNAPSHOT = 15 * MINUTE
const MUCH_USED = 0.9
/** The store is away after 3 s. */
const LONG_LOCK_SECONDS = 2
const WARN_AHEAD = 2 * SECOND

export async function postgresFindings(url: string, verdicts: Verdicts): Promise<HealthFinding[]> {
  if (url === '') return [verdicts.skip(null, 'storage.url cannot be read by this user')]
  try {
    return judgePostgres(await postgresFacts(url), url, verdicts)
  } catch (thrown) {
    const fix = 'psql with the same URL; sternpost check; then the log of PostgreSQL'
    return [verdicts.fail(null, `PostgreSQL cannot be used: ${errorText(thrown)}`, fix)]
  }
}

export function judgePostgres(facts: PostgresFacts, url: string, verdicts: Verdicts): HealthFinding[] {
  const { versionText, connections, mostConnections, tls } = facts
  const seen = `PostgreSQL ${versionText}, ${tls ?? 'without TLS'}, ${connections} of ${mostConnections} connections`
  return [
    verdicts.ok(null, seen),
    ...startability(facts, verdicts),
    ...promises(facts, verdicts),
    ...locks(facts, verdicts),
    ...growth(facts, verdicts),
    ...ways(facts, url, verdicts),
  ]
}

/** An upgraded node has migrated the tables: what runs goes on. */
function startability({ schema, knownSchema }: PostgresFacts, { warn }: Verdicts): HealthFinding[] {
  if (schema <= knownSchema) return []
  const fix = 'install the newer Sternpost, or go back to a dump of before: systemd/README.md "PostgreSQL"'
  return [warn(null, `its schema is ${schema}, this program knows ${knownSchema} and does not start with it`, fix)]
}

/** What a commit is worth. */
function promises(facts: PostgresFacts, { fail }: Verdicts): HealthFinding[] {
  const { version, versionText, isStandby, isReadOnly, unsafe, standbys, synchronousStandbyNames: names } = facts
  const found: HealthFinding[] = []
  if (version < OLDEST_VERSION) found.push(fail(null, `PostgreSQL ${versionText} is too old`, 'install 15 or newer'))
  if (isStandby)
    found.push(fail(null, 'this server is a standby and takes no writes', 'name the primary in storage.url'))
  if (isReadOnly) {
    const fix = 'what set it, such as a provider whose disk is full, ends it; or alter role, or database, … reset it'
    found.push(fail(null, 'default_transaction_read_only is on for our sessions: nothing can be written', fix))
  }
  for (const setting of unsafe) {
    found.push(fail(null, `${setting} is off: a power cut loses mail`, `alter system set ${setting} = on; then reload`))
  }
  if (standbys > 0 && names === '') {
    const text = `no commit waits for any of its ${standbys} standbys: a failover loses mail, and sends some of it twice`
    found.push(fail(null, text, `alter system set synchronous_standby_names = 'ANY 1 (*)'; then reload`))
  }
  return found
}

/** Who keeps our work waiting, as a `vacuum full` does. */
function locks({ blockers }: PostgresFacts, { fail }: Verdicts): HealthFinding[] {
  return blockers
    .filter(({ seconds }) => seconds >= LONG_LOCK_SECONDS)
    .map(({ process, name, seconds }) => {
      const who = name === null || name === '' ? `session ${process}` : `session ${process} (${name})`
      const text = `our work has waited ${ageText(seconds * SECOND)} for a lock of ${who}`
      return fail(null, text, `wait for its end, or end it: select pg_terminate_backend(${process})`)
    })
}

/** Dead rows, and what keeps them. */
function growth(facts: PostgresFacts, { warn }: Verdicts): HealthFinding[] {
  const { tables, hasAutovacuum, oldestSnapshotSeconds, seesOthers } = facts
  const found: HealthFinding[] = []
  for (const { table, liveRows, deadRows } of tables) {
    if (deadRows <= Math.max(MANY_DEAD_ROWS, liveRows)) continue
    const text = `${table} has ${deadRows} dead rows beside ${liveRows} living ones`
    found.push(warn(null, text, `end what keeps them (see pg_stat_activity), then: vacuum (verbose) ${table}`))
  }
  if (!hasAutovacuum) found.push(warn(null, 'autovacuum is off: dead rows stay', 'alter system set autovacuum = on'))
  const age = oldestSnapshotSeconds * SECOND
  if (age > OLD_SNAPSHOT) {
    const fix = 'find it in pg_stat_activity by its xact_start, and end it: pg_terminate_backend(pid)'
    found.push(warn(null, `a transaction is open for ${ageText(age)}: no dead row behind it goes`, fix))
  }
  if (!seesOthers) {
    found.push(warn(null, 'open transactions of others cannot be seen by our role', 'grant pg_monitor to sternpost'))
  }
  return found
}

/** Between the server and us. */
function ways(facts: PostgresFacts, url: string, { warn }: Verdicts): HealthFinding[] {
  const { connections, mostConnections, aheadMilliseconds, tls, isHere } = facts
  const found: HealthFinding[] = []
  if (connections > MUCH_USED * mostConnections) {
    const text = `${connections} of ${mostConnections} connections are used: soon none is left for us`
    found.push(warn(null, text, 'raise max_connections, or reserve some: alter role … connection limit for others'))
  }
  if (Math.abs(aheadMilliseconds) > WARN_AHEAD) {
    const side = aheadMilliseconds > 0 ? 'ahead of' : 'behind'
    const text = `its clock is ${(Math.abs(aheadMilliseconds) / SECOND).toFixed(1)} s ${side} ours`
    found.push(warn(null, text, 'timedatectl, on both machines'))
  }
  const { searchParams } = new URL(url)
  const mode = searchParams.get('sslmode')
  const fix = 'sslmode=verify-full and sslrootcert in storage.url (config/README.md "sternpost.yaml")'
  if (tls === null && !isHere) found.push(warn(null, 'mail crosses the network to it in plain text', fix))
  if (tls !== null && mode === 'require' && !searchParams.has('sslrootcert')) {
    found.push(warn(null, 'its certificate is not looked at: somebody else may answer in its place', fix))
  }
  return found
}
