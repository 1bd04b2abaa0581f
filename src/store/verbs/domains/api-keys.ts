/** API keys: only the SHA-256 of a key is stored, and by it a key is found. A revoked key keeps its row. */
import type { Database } from '../../engine/database.ts'
import { ServiceError } from '../../../base/errors.ts'
import { identifierFromBytes, identifierToBytes } from '../../../base/identifier.ts'
import type { ApiKeyRecord } from '../../records/sender-records.ts'
import { pageOf, wrongCursor } from '../tools/pages.ts'
import { getNamed, storedIdentifier } from '../tools/stored-identifier.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

type ApiKeyRow = Omit<ApiKeyRecord, 'id' | 'scopes' | 'domains' | 'allowedIps'> & {
  id: Buffer
  scopes: string
  domains: string
  allowedIps: string
}

const KEY_COLUMNS = `
  id, name, mode, scopes, domains, allowed_ips as allowedIps, prefix, last4, created_at as createdAt,
  expires_at as expiresAt, last_used_at as lastUsedAt, revoked_at as revokedAt`
const AFTER_ALL_IDENTIFIERS = Buffer.alloc(17, 0xff)

export function createApiKeyReads(database: Database) {
  const find = database.prepare<[Uint8Array], ApiKeyRow>(`select ${KEY_COLUMNS} from api_keys where hash = ?`)
  const findPage = database.prepare<[Buffer, number], ApiKeyRow>(`
    select ${KEY_COLUMNS} from api_keys where id < ? order by id desc limit +?`)
  return {
    findApiKey: (hash) => recordOrNull(find.get(hash)),
    findApiKeyById: createFindById(database),
    /** Identifiers grow with time, so their falling order is newest first, and one of them is the cursor. */
    listApiKeys(limit, after) {
      const before = after === null ? AFTER_ALL_IDENTIFIERS : identifierToBytes('key', after)
      if (before === undefined) throw wrongCursor()
      const rows = findPage.all(before, limit + 1)
      const { page, next } = pageOf(rows, limit, ({ id }) => identifierFromBytes('key', id))
      return { keys: page.map(toRecord), next }
    },
  } satisfies SomeVerbs
}

export function createApiKeyWrites(database: Database) {
  const find = createFindById(database)
  const add = database.prepare<[ApiKeyRow & { hash: Uint8Array }]>(`
    insert into api_keys
      (id, hash, name, mode, scopes, domains, allowed_ips, prefix, last4, created_at, expires_at, last_used_at,
      revoked_at)
    values
      (@id, @hash, @name, @mode, @scopes, @domains, @allowedIps, @prefix, @last4, @createdAt, @expiresAt, @lastUsedAt,
      @revokedAt)`)
  const update = database.prepare<[ApiKeyRow]>(`
    update api_keys
    set name = @name, domains = @domains, allowed_ips = @allowedIps, expires_at = @expiresAt
    where id = @id`)
  const revoke = database.prepare<[number, Buffer]>('update api_keys set revoked_at = ? where id = ?')
  const note = database.prepare<[number, Buffer]>(`
    update api_keys set last_used_at = max(coalesce(last_used_at, 0), ?) where id = ?`)
  // Neither revoked nor expired; naming both modes is what lets the partial index answer.
  const findLiving = database.prepare<[number], ApiKeyRow>(`
    select ${KEY_COLUMNS}
    from api_keys
    where mode in ('live', 'test') and revoked_at is null and (expires_at is null or expires_at > ?)`)
  const livingAdmins = (now: number): ApiKeyRecord[] => {
    const living = findLiving.all(now).map(toRecord)
    return living.filter(({ mode, scopes }) => mode === 'live' && scopes.includes('admin'))
  }
  return {
    addApiKey(key, hash, most) {
      if (most !== null && findLiving.all(key.createdAt).length >= most) {
        throw new ServiceError('conflict', `there are ${most} API keys already, which is the limit`)
      }
      add.run({ ...toRow(key), hash })
    },
    updateApiKey(id, change, keepsAdminAt) {
      const found = find(id)
      if (found === null) return null
      const changed = { ...found, ...change }
      const ends = endOf(changed)
      if (keepsAdminAt !== undefined && ends < endOf(found)) {
        const admins = livingAdmins(keepsAdminAt)
        if (admins.some((key) => key.id === id) && !admins.some((key) => key.id !== id && endOf(key) > ends)) {
          throw new ServiceError('conflict', 'expires_at: no other live key with the scope admin would be left then')
        }
      }
      update.run(toRow(changed))
      return changed
    },
    revokeApiKey(id, now, keepsAdmin) {
      const found = find(id)
      if (found === null || found.revokedAt !== null) return found
      const admins = livingAdmins(now)
      if (keepsAdmin && admins.length === 1 && admins[0]?.id === id) {
        throw new ServiceError('conflict', 'the last live key with the scope admin cannot be revoked here')
      }
      revoke.run(now, storedIdentifier('key', id))
      return { ...found, revokedAt: now }
    },
    noteKeyUse(uses) {
      for (const { id, at } of uses) note.run(at, storedIdentifier('key', id))
    },
  } satisfies SomeVerbs
}

/** What was revoked in another database is revoked in this one too; returns how many keys that ends. */
export function createRevocationCopy(from: Database, to: Database): () => number {
  const revoked = from.prepare<[], Pick<ApiKeyRow, 'id' | 'revokedAt'>>(`
    select id, revoked_at as revokedAt from api_keys where revoked_at is not null`)
  const revoke = to.prepare<[number | null, Buffer]>(`
    update api_keys set revoked_at = ? where id = ? and revoked_at is null`)
  return () => revoked.all().reduce((ended, { id, revokedAt }) => ended + revoke.run(revokedAt, id).changes, 0)
}

function createFindById(database: Database): (id: string) => ApiKeyRecord | null {
  const find = database.prepare<[Buffer], ApiKeyRow>(`select ${KEY_COLUMNS} from api_keys where id = ?`)
  return (id) => recordOrNull(getNamed(find, 'key', id))
}

const endOf = ({ expiresAt }: ApiKeyRecord): number => expiresAt ?? Infinity

const recordOrNull = (row: ApiKeyRow | undefined): ApiKeyRecord | null => (row === undefined ? null : toRecord(row))

const toRecord = (row: ApiKeyRow): ApiKeyRecord => ({
  ...row,
  id: identifierFromBytes('key', row.id),
  scopes: JSON.parse(row.scopes) as string[],
  domains: JSON.parse(row.domains) as string[],
  allowedIps: JSON.parse(row.allowedIps) as string[],
})

const toRow = (key: ApiKeyRecord): ApiKeyRow => ({
  ...key,
  id: storedIdentifier('key', key.id),
  scopes: JSON.stringify(key.scopes),
  domains: JSON.stringify(key.domains),
  allowedIps: JSON.stringify(key.allowedIps),
})
