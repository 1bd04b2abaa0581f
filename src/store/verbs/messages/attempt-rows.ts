/** The row of a try: `attempts`, written once and read back as it was given. */
import type { Database } from '../../engine/database.ts'
import type { DeliveryAttempt, TlsFacts } from '../../../mail/reply/delivery-outcome.ts'

/** A try that is recorded already stays as it is. `counts` false: it is stale. */
export function createAttemptWriter(database: Database) {
  const add = database.prepare(`
    insert into attempts
      (message_seq, at, result, duration_milliseconds, ip, host, local_address, remote_address, tls, tls_facts, stage,
      reply, stale)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict do nothing`)
  return (key: number, attempt: DeliveryAttempt, counts: boolean): void => {
    add.run(
      key,
      attempt.at,
      attempt.result,
      Math.round(attempt.durationMilliseconds),
      attempt.ip,
      attempt.host,
      attempt.localAddress,
      attempt.remoteAddress,
      attempt.tls?.protocol ?? null,
      tlsFactsText(attempt.tls),
      attempt.stage,
      attempt.reply,
      counts ? 0 : 1,
    )
  }
}

function tlsFactsText(tls: TlsFacts | null): string | null {
  if (tls === null) return null
  const { protocol: _inItsOwnColumn, ...facts } = tls
  return JSON.stringify(facts)
}

type AttemptRow = Omit<DeliveryAttempt, 'tls'> & { protocol: string | null; facts: string | null }

/** Every try of a message, oldest first. */
export function createAttemptReader(database: Database): (key: number) => DeliveryAttempt[] {
  const find = database.prepare<[number], AttemptRow>(`
    select
      at, duration_milliseconds as durationMilliseconds, ip, result, stage, reply, host, local_address as localAddress,
      remote_address as remoteAddress, tls as protocol, tls_facts as facts
    from attempts
    where message_seq = ?
    order by at`)
  return (key) =>
    find
      .all(key)
      .map(({ protocol, facts, ...attempt }) => ({
        ...attempt,
        tls: protocol === null ? null : tlsFrom(protocol, facts),
      }))
}

/** Earlier programs kept the protocol alone. */
function tlsFrom(protocol: string, facts: string | null): TlsFacts {
  const unknown = { cipher: '', fingerprint: null, isVerified: false, policy: 'none', problem: null }
  return { protocol, ...(facts === null ? unknown : (JSON.parse(facts) as Omit<TlsFacts, 'protocol'>)) }
}
