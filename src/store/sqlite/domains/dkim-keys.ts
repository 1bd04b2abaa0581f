/**
 * The DKIM keys of a domain's row. The private ones are sealed before they come here.
 *
 * RFC 6376 §3.6.1, RFC 8463 §4.
 */
import type { Database } from 'better-sqlite3'
import { ServiceError } from '../../../base/errors.ts'
import type { DkimKeyRecord } from '../../records/sender-records.ts'

interface DkimKeys {
  /** Oldest first. */
  keysOf(domainId: number): DkimKeyRecord[]
  /** ServiceError conflict when the domain has a key of the same selector. */
  add(domainId: number, keys: readonly DkimKeyRecord[]): void
  /**
   * Makes a domain's keys what a check made of them, as it read them at `readAt`: a key that came since then stays, one
   * that went since then does not come back.
   */
  settle(domainId: number, keys: readonly DkimKeyRecord[], readAt: number): void
}

export function createDkimKeys(database: Database): DkimKeys {
  const find = database.prepare<[number], DkimKeyRecord & { dkimKeyId: number }>(`
    select
      dkim_key_id as dkimKeyId, selector, algorithm, role, public_key as publicKey,
      sealed_private_key as sealedPrivateKey, created_at as createdAt, seen_at as seenAt, retire_at as retireAt
    from dkim_keys
    where domain_id = ?`)
  const insert = database.prepare(`
    insert into dkim_keys
      (domain_id, selector, algorithm, role, public_key, sealed_private_key, created_at, seen_at, retire_at)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?)`)
  const change = database.prepare<[string, number | null, number | null, number, string]>(
    'update dkim_keys set role = ?, seen_at = ?, retire_at = ? where domain_id = ? and selector = ?',
  )
  const drop = database.prepare<[number, string]>('delete from dkim_keys where domain_id = ? and selector = ?')

  const keysOf = (domainId: number): DkimKeyRecord[] =>
    find
      .all(domainId)
      .sort((left, right) => left.createdAt - right.createdAt || left.dkimKeyId - right.dkimKeyId)
      .map(({ dkimKeyId: _number, ...key }) => key)

  return {
    keysOf,
    add(domainId, keys) {
      const taken = new Set(find.all(domainId).map(({ selector }) => selector))
      for (const key of keys) {
        if (taken.has(key.selector)) throw new ServiceError('conflict', `the selector ${key.selector} is in use`)
        taken.add(key.selector)
        insert.run(
          domainId,
          key.selector,
          key.algorithm,
          key.role,
          key.publicKey,
          key.sealedPrivateKey,
          key.createdAt,
          key.seenAt,
          key.retireAt,
        )
      }
    },
    settle(domainId, keys, readAt) {
      const kept = new Map(keys.map((key) => [key.selector, key]))
      for (const { selector, createdAt } of find.all(domainId)) {
        const key = kept.get(selector)
        if (key !== undefined) change.run(key.role, key.seenAt, key.retireAt, domainId, selector)
        else if (createdAt < readAt) drop.run(domainId, selector)
      }
    },
  }
}
