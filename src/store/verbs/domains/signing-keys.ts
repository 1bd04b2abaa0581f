/** The keys that mail is signed with, as delivery threads read them. */
import type { SealedSigningKey } from '../../content-reader.ts'
import { SENDING_ROW } from './domain-rows.ts'

const KEYS = `
  select domains.name as domain, selector, algorithm, sealed_private_key as sealedPrivateKey
  from dkim_keys
  join domains on domains.domain_id = dkim_keys.domain_id
  where role = 'active'`

/** Of a sending domain, whose name is bound twice; SealedSigningKey. */
export const SIGNING_KEYS_QUERY = `${KEYS} and dkim_keys.domain_id = ${SENDING_ROW}`
/** Of a domain that may send now. */
export const PLATFORM_KEYS_QUERY = `
  ${KEYS} and name = ? and removed_at is null and state in ('verified', 'degraded')`

/** Signatures stand in this order: the one that every receiver knows is the topmost. */
export const byRank = (left: SealedSigningKey, right: SealedSigningKey): number => rank(left) - rank(right)

const rank = ({ algorithm }: SealedSigningKey): number => (algorithm === 'rsa-sha256' ? 0 : 1)
