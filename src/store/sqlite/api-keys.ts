/**
 * API keys: only the SHA-256 of a key is stored, and by it a key is found.
 */
import type { Database } from 'better-sqlite3'
import { identifierFromBytes } from '../../base/identifier.ts'
import type { ApiKeyRecord } from '../records.ts'
import { storedIdentifier } from './stored-identifier.ts'

type ApiKeyRow = Omit<ApiKeyRecord, 'id' | 'scopes' | 'domains' | 'allowedIps'> & {
  id: Buffer
  scopes: string
  domains: string
  allowedIps: string
}

export function createAddApiKey(database: Database): (request: { key: ApiKeyRecord; hash: Uint8Array }) => void {
  const add = database.prepare(`
    insert into api_keys
      (id, hash, name, mode, scopes, domains, allowed_ips, prefix, last4, created_at, expires_at, revoked_at)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
  return ({ key, hash }) => {
    add.run(
      storedIdentifier('key', key.id), hash, key.name, key.mode, JSON.stringify(key.scopes),
      JSON.stringify(key.domains), JSON.stringify(key.allowedIps), key.prefix, key.last4, key.createdAt, key.expiresAt,
      key.revokedAt,
    )
  }
}

export function createFindApiKey(database: Database): (hash: Uint8Array) => ApiKeyRecord | null {
  const find = database.prepare<[Uint8Array], ApiKeyRow>(`
    select
      id, name, mode, scopes, domains, allowed_ips as allowedIps, prefix, last4, created_at as createdAt,
      expires_at as expiresAt, revoked_at as revokedAt
    from api_keys
    where hash = ?`)
  return (hash) => {
    const row = find.get(hash)
    if (row === undefined) return null
    return {
      ...row,
      id: identifierFromBytes('key', row.id),
      scopes: JSON.parse(row.scopes) as string[],
      domains: JSON.parse(row.domains) as string[],
      allowedIps: JSON.parse(row.allowedIps) as string[],
    }
  }
}
