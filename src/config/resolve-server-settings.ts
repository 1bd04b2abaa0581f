/**
 * The last step of `sternpost.yaml`: names that derive from others, a time that is cut, and secrets read. One that cannot be read is left
 * empty and is a finding at its key: an error, or a warning where it is not needed. The credentials of a service are
 * visible to nobody else, so a check from outside cannot need them.
 */
import { join } from 'node:path'
import { statSync } from 'node:fs'
import { warningAt, type Finding } from './source/finding.ts'
import { durationText } from './settings/field-types.ts'
import { type Reading, accepted, refused } from './settings/reading.ts'
import { OTHERS_MASK, type SecretReference } from './settings/network-field-types.ts'
import { readDatabaseUrl, type DatabaseUrlReference } from './settings/database-url.ts'
import type { ParsedServerSettings, ServerSettings } from './settings/server-settings.ts'
import { MINUTE } from '../base/clock.ts'
import { errorCode, errorText } from '../base/errors.ts'
import { readRegularFile } from '../base/regular-file.ts'
import { MASTER_KEY_BYTES } from '../base/key-ring.ts'

const MOST_SECRET_BYTES = 64 * 2 ** 10
/** Half of the time between the two lookups that end a message (delivery/settle/judge-dns.ts). */
const LONGEST_DENIAL = 5 * MINUTE

/** all: to run. files: to check, also outside the service. none: for commands that only look. */
export type NeededSecrets = 'all' | 'files' | 'none'

interface SecretSource {
  credentialsFolder: string | undefined
  neededSecrets: NeededSecrets
}

export function resolveServerSettings(
  parsed: ParsedServerSettings,
  source: SecretSource,
): { settings: ServerSettings; findings: Finding[] } {
  const findings: Finding[] = []
  /** `empty`: in place of a secret that could not be read. */
  function read<Reference extends DatabaseUrlReference, Value>(
    path: string[],
    reference: Reference,
    how: (reference: Reference, credentialsFolder: string | undefined) => Reading<Value>,
    empty: Value,
  ): Value {
    const reading = how(reference, source.credentialsFolder)
    if (reading.ok) return reading.value
    const { problem, suggestion = null } = reading
    findings.push({ file: 'sternpost', path, severity: severityOf(reference, source), message: problem, suggestion })
    return empty
  }
  const { url } = parsed.storage
  const { token } = parsed.metrics
  const settings: ServerSettings = {
    ...parsed,
    ...namesOf(parsed),
    dns: cutDenial(parsed.dns, findings),
    secrets: { master_key: read(['secrets', 'master_key'], parsed.secrets.master_key, readMasterKey, Buffer.alloc(0)) },
    storage: { ...parsed.storage, url: url && read(['storage', 'url'], url, readUrl, '') },
    metrics: { token: token && read(['metrics', 'token'], token, readSecret, '') },
  }
  return { settings, findings }
}

function severityOf(reference: DatabaseUrlReference, source: SecretSource): Finding['severity'] {
  if (typeof reference === 'string') return 'error'
  const { neededSecrets, credentialsFolder } = source
  const isHere = !('credential' in reference) || credentialsFolder !== undefined
  const isNeeded = neededSecrets === 'all' || (neededSecrets === 'files' && isHere)
  return isNeeded ? 'error' : 'warning'
}

/** A kept "no such name" must not confirm itself. */
function cutDenial(dns: ParsedServerSettings['dns'], findings: Finding[]): ServerSettings['dns'] {
  const { negative_ttl: denial } = dns.cache
  if (denial <= LONGEST_DENIAL) return dns
  const longest = durationText(LONGEST_DENIAL)
  const why = 'a kept "no such name" would confirm itself, and end mail'
  const text = `${durationText(denial)} is above ${longest}, which is used: ${why}`
  findings.push(warningAt('sternpost', ['dns', 'cache', 'negative_ttl'], text))
  return { ...dns, cache: { ...dns.cache, negative_ttl: LONGEST_DENIAL } }
}

/** What null stands for (config/README.md "sternpost.yaml"). */
function namesOf(parsed: ParsedServerSettings) {
  const { hostname, domains, inbound, tracking, backup } = parsed
  const targets = {
    return_path: domains.targets.return_path ?? `rp.${hostname}`,
    spf: domains.targets.spf ?? `spf.${hostname}`,
    tracking: domains.targets.tracking ?? `track.${hostname}`,
  }
  return {
    node_id: parsed.node_id ?? hostname,
    public_url: parsed.public_url ?? `https://${hostname}`,
    inbound: { ...inbound, complaint_address: inbound.complaint_address ?? `fbl@${hostname}` },
    domains: { ...domains, targets, dmarc_report_address: domains.dmarc_report_address ?? `dmarc@${hostname}` },
    tracking: { ...tracking, host: tracking.host ?? targets.tracking },
    backup: { ...backup, dir: backup.dir ?? join(parsed.data_dir, 'backups') },
  }
}

/** The text of a secret without the white space around it. */
function readSecret(reference: SecretReference, credentialsFolder: string | undefined): Reading<string> {
  if ('credential' in reference && credentialsFolder === undefined) {
    return refused('a credential is only there in the service: systemd hands it over in $CREDENTIALS_DIRECTORY')
  }
  const file = 'file' in reference ? reference.file : join(credentialsFolder ?? '', reference.credential)
  try {
    const facts = statSync(file)
    const { mode, size } = facts
    if (facts.isFile() && (mode & OTHERS_MASK) !== 0)
      return refused(`others can use ${file}; run chmod o= ${file}`, `chmod o= ${file}`)
    if (size > MOST_SECRET_BYTES) return refused(`${file} is too large for a secret`)
    const text = readRegularFile(file).toString('utf8').trim()
    return text === '' ? refused(`${file} is empty`) : accepted(text)
  } catch (thrown) {
    if (errorCode(thrown) === 'ENOENT') return refused(`there is no file ${file}`)
    return refused(`cannot read ${file}: ${errorText(thrown)}`)
  }
}

function readUrl(reference: DatabaseUrlReference, credentialsFolder: string | undefined): Reading<string> {
  if (typeof reference === 'string') return readDatabaseUrl(reference)
  if ('variable' in reference) return readDatabaseUrl(process.env[reference.variable]?.trim() ?? '')
  const text = readSecret(reference, credentialsFolder)
  return text.ok ? readDatabaseUrl(text.value) : text
}

/** The master key: 32 bytes, base64. */
function readMasterKey(reference: SecretReference, credentialsFolder: string | undefined): Reading<Buffer> {
  const reading = readSecret(reference, credentialsFolder)
  if (!reading.ok) return reading
  const key = Buffer.from(reading.value, 'base64')
  // Base64 of 32 bytes: 43 characters and one for padding.
  const isBase64 = /^[A-Za-z0-9+/]{43}=?$/.test(reading.value)
  if (isBase64 && key.length === MASTER_KEY_BYTES) return accepted(key)
  return refused(`the master key must be ${MASTER_KEY_BYTES} bytes in base64; make one with: openssl rand -base64 32`)
}
