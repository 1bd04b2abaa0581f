/**
 * The last step of `sternpost.yaml`: names that derive from others, and secrets read.
 *
 * A secret that cannot be read is a finding at its key: an error, or a warning where it is not needed, and then it is
 * left empty. The credentials of a service are visible to nobody else, so a check from outside cannot need them.
 */
import { join } from 'node:path'
import type { Finding } from './source/finding.ts'
import type { Reading } from './settings/field-types.ts'
import type { SecretReference } from './settings/network-field-types.ts'
import { readMasterKey, readSecret } from './settings/secrets.ts'
import type { ParsedServerSettings, ServerSettings } from './settings/server-settings.ts'

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
  const read = <Value>(path: string[], reference: SecretReference, how: ReadHow<Value>): Value => {
    const reading = how.read(reference, source.credentialsFolder)
    if (reading.ok) return reading.value
    const { problem, suggestion = null } = reading
    findings.push({ file: 'sternpost', path, severity: severityOf(reference, source), message: problem, suggestion })
    return how.empty
  }
  const asText: ReadHow<string> = { read: readSecret, empty: '' }
  const { master_key } = parsed.secrets
  const { postgres } = parsed.storage
  const postgresUrl = ['storage', 'postgres', 'url']
  const { token } = parsed.metrics
  const settings: ServerSettings = {
    ...parsed,
    ...namesOf(parsed),
    secrets: {
      master_key: read(['secrets', 'master_key'], master_key, { read: readMasterKey, empty: Buffer.alloc(0) }),
    },
    storage: {
      ...parsed.storage,
      postgres: postgres === null ? null : { ...postgres, url: read(postgresUrl, postgres.url, asText) },
    },
    metrics: { token: token === null ? null : read(['metrics', 'token'], token, asText) },
  }
  return { settings, findings }
}

interface ReadHow<Value> {
  read(reference: SecretReference, credentialsFolder: string | undefined): Reading<Value>
  /** In place of a secret that could not be read. */
  empty: Value
}

function severityOf(reference: SecretReference, source: SecretSource): Finding['severity'] {
  const { neededSecrets, credentialsFolder } = source
  const isHere = 'file' in reference || credentialsFolder !== undefined
  const isNeeded = neededSecrets === 'all' || (neededSecrets === 'files' && isHere)
  return isNeeded ? 'error' : 'warning'
}

type Names = 'node_id' | 'public_url' | 'inbound' | 'domains' | 'tracking' | 'backup'

/** What null stands for (config/README.md "sternpost.yaml"). */
function namesOf(parsed: ParsedServerSettings): Pick<ServerSettings, Names> {
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
