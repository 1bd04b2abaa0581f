/**
 * The two texts of MTA-STS: the TXT record that says there is a policy, and the policy itself (RFC 8461 §3.1, §3.2).
 *
 * Pure; never throws. Unknown fields are passed over, as the standard wants it; what is wrong about a known one is
 * said.
 */

export type StsMode =
  | 'enforce' // mail goes to the named hosts alone, and only over TLS that can be verified
  | 'testing' // nothing is refused, but what `enforce` would have refused is reported
  | 'none' // there is no policy any more

/** What a domain asks of those who send to it. */
export interface StsTerms {
  mode: StsMode
  /** Host names, lower case; `*.` in front stands for exactly one label. */
  mx: string[]
  maxAgeSeconds: number
}

type StsTermsReading = { ok: true; terms: StsTerms } | { ok: false; problem: string }

// The version, and what follows it up to the end of the field.
const RECORD_START = /^v=STSv1[ \t]*(;|$)/
const RECORD_ID = /^[A-Za-z0-9]{1,32}$/
const MAX_AGE = /^\d{1,10}$/
// An optional "*.", then labels of letters, digits and hyphens that begin and end with no hyphen.
const MX_PATTERN = /^(?:\*\.)?[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/
/** Of a policy of 64 KiB only so many hosts are kept; no MX set has more. */
const MOST_HOSTS = 1_000

/** The id of the policy; undefined when there is none: no such record, several of them, or a wrong one. */
export function readStsRecord(texts: readonly string[]): string | undefined {
  const records = texts.filter((text) => RECORD_START.test(text))
  const [record] = records
  if (record === undefined || records.length > 1) return undefined
  const fields = record.split(';').map((field) => field.trim())
  const id = fields.find((field) => field.startsWith('id='))?.slice('id='.length)
  return id !== undefined && RECORD_ID.test(id) ? id : undefined
}

export function readStsPolicy(text: string): StsTermsReading {
  const fields = new Map<string, string>()
  const mx = new Set<string>()
  for (const line of text.split(/\r?\n/)) {
    const colon = line.indexOf(':')
    if (colon < 1) continue
    const key = line.slice(0, colon).trim()
    const value = line.slice(colon + 1).trim()
    if (key === 'mx') mx.add(value.toLowerCase())
    else if (!fields.has(key)) fields.set(key, value)
  }
  const mode = fields.get('mode')
  const maxAge = fields.get('max_age') ?? ''
  if (fields.get('version') !== 'STSv1') return { ok: false, problem: 'the version is not STSv1' }
  if (mode !== 'enforce' && mode !== 'testing' && mode !== 'none') return { ok: false, problem: 'the mode is unknown' }
  if (!MAX_AGE.test(maxAge)) return { ok: false, problem: 'max_age is no number of seconds' }
  const hosts = [...mx]
  if (!hosts.every((host) => MX_PATTERN.test(host))) return { ok: false, problem: 'an mx is no host name' }
  if (hosts.length === 0 && mode !== 'none') return { ok: false, problem: 'it names no mx' }
  if (hosts.length > MOST_HOSTS) return { ok: false, problem: `it names more than ${MOST_HOSTS} mx` }
  return { ok: true, terms: { mode, mx: hosts, maxAgeSeconds: Number(maxAge) } }
}
