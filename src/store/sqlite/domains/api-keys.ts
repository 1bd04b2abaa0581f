/** API keys: only the SHA-256 of a key is stored, and by it a key is found. A revoked key keeps its row. */
import type { Database } from 'better-sqlite3'
import { ServiceError } from '../../../base/errors.ts'
import { identifierFromBytes, identifierToBytes } from '../../../base/identifier.ts'
import type { ApiKeyChange, ApiKeyPage, ApiKeyRecord } from '../../records/sender-records.ts'
import { pageOf, wrongCursor } from '../engine/page-cursor.ts'
import { storedIdentifier } from '../engine/stored-identifier.ts'

type ApiKeyRow = Omit<ApiKeyRecord, 'id' | 'scopes' | 'domains' | 'allowedIps'> & {
  id: Buffer
  scopes: string
  domains: string
  allowedIps: string
}

const KEY_COLUMNS = `
  id, name, mode, scopes, domains, allowed_ips as allowedIps, prefix, last4, created_at as createdAt,
  expires_at as expiresAt, last_used_at as lastUsedAt, revoked_at as revokedAt`

interface AddApiKeyRequest {
  key: ApiKeyRecord
  hash: Uint8Array
  most: number | null
}

export function createAddApiKey(database: Database): (request: AddApiKeyRequest) => void {
  const add = database.prepare(`
    insert into api_keys
      (id, hash, name, mode, scopes, domains, allowed_ips, prefix, last4, created_at, expires_at, last_used_at,
      revoked_at)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
  const findLiving = createLivingKeys(database)
  return ({ key, hash, most }) => {
    if (most !== null && findLiving(key.createdAt).length >= most) {
      throw new ServiceError('conflict', `there are ${most} API keys already, which is the limit`)
    }
    add.run(
      storedIdentifier('key', key.id),
      hash,
      key.name,
      key.mode,
      JSON.stringify(key.scopes),
      JSON.stringify(key.domains),
      JSON.stringify(key.allowedIps),
      key.prefix,
      key.last4,
      key.createdAt,
      key.expiresAt,
      key.lastUsedAt,
      key.revokedAt,
    )
  }
}

export function createFindApiKey(database: Database): (hash: Uint8Array) => ApiKeyRecord | null {
  const find = database.prepare<[Uint8Array], ApiKeyRow>(`select ${KEY_COLUMNS} from api_keys where hash = ?`)
  return (hash) => {
    const row = find.get(hash)
    return row === undefined ? null : toRecord(row)
  }
}

export function createFindApiKeyById(database: Database): (id: string) => ApiKeyRecord | null {
  const find = database.prepare<[Buffer], ApiKeyRow>(`select ${KEY_COLUMNS} from api_keys where id = ?`)
  return (id) => {
    const bytes = identifierToBytes('key', id)
    const row = bytes === undefined ? undefined : find.get(bytes)
    return row === undefined ? null : toRecord(row)
  }
}

const AFTER_ALL_IDENTIFIERS = Buffer.alloc(17, 0xff)

/** Identifiers grow with time, so their falling order is newest first, and one of them is the cursor. */
export function createListApiKeys(
  database: Database,
): (request: { limit: number; after: string | null }) => ApiKeyPage {
  const find = database.prepare<[Buffer, number], ApiKeyRow>(
    `select ${KEY_COLUMNS} from api_keys where id < ? order by id desc limit +?`,
  )
  return ({ limit, after }) => {
    const before = after === null ? AFTER_ALL_IDENTIFIERS : identifierToBytes('key', after)
    if (before === undefined) throw wrongCursor()
    const { page, next } = pageOf(find.all(before, limit + 1), limit, ({ id }) => identifierFromBytes('key', id))
    return { keys: page.map(toRecord), next }
  }
}

export function createUpdateApiKey(
  database: Database,
): (request: { id: string; change: ApiKeyChange }) => ApiKeyRecord | null {
  const find = createFindApiKeyById(database)
  const update = database.prepare<[string, string, string, number | null, Buffer]>(
    'update api_keys set name = ?, domains = ?, allowed_ips = ?, expires_at = ? where id = ?',
  )
  return ({ id, change }) => {
    const found = find(id)
    if (found === null) return null
    const changed = { ...found, ...change }
    const { name, domains, allowedIps, expiresAt } = changed
    update.run(name, JSON.stringify(domains), JSON.stringify(allowedIps), expiresAt, storedIdentifier('key', id))
    return changed
  }
}

interface RevokeRequest {
  id: string
  now: number
  keepsAdmin: boolean
}

export function createRevokeApiKey(database: Database): (request: RevokeRequest) => ApiKeyRecord | null {
  const find = createFindApiKeyById(database)
  const findLiving = createLivingKeys(database)
  const revoke = database.prepare<[number, Buffer]>('update api_keys set revoked_at = ? where id = ?')
  return ({ id, now, keepsAdmin }) => {
    const found = find(id)
    if (found === null || found.revokedAt !== null) return found
    const admins = findLiving(now).filter(({ mode, scopes }) => mode === 'live' && scopes.includes('admin'))
    if (keepsAdmin && admins.length === 1 && admins[0]?.id === id) {
      throw new ServiceError('conflict', 'the last live key with the scope admin cannot be revoked here')
    }
    revoke.run(now, storedIdentifier('key', id))
    return { ...found, revokedAt: now }
  }
}

export function createNoteKeyUse(database: Database): (uses: { id: string; at: number }[]) => void {
  const note = database.prepare<[number, Buffer]>(
    'update api_keys set last_used_at = max(coalesce(last_used_at, 0), ?) where id = ?',
  )
  return (uses) => {
    for (const { id, at } of uses) note.run(at, storedIdentifier('key', id))
  }
}

/** Keys that are neither revoked nor expired; naming both modes is what lets the partial index answer. */
function createLivingKeys(database: Database): (now: number) => ApiKeyRecord[] {
  const find = database.prepare<[number], ApiKeyRow>(`
    select ${KEY_COLUMNS}
    from api_keys
    where mode in ('live', 'test') and revoked_at is null and (expires_at is null or expires_at > ?)`)
  return (now) => find.all(now).map(toRecord)
}

const toRecord = (row: ApiKeyRow): ApiKeyRecord => ({
  ...row,
  id: identifierFromBytes('key', row.id),
  scopes: JSON.parse(row.scopes) as string[],
  domains: JSON.parse(row.domains) as string[],
  allowedIps: JSON.parse(row.allowedIps) as string[],
})
