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
  /** `empty`: in place of a secret that could not be read. */
  function read<Value>(path: string[], reference: SecretReference, how: ReadSecret<Value>, empty: Value): Value {
    const reading = how(reference, source.credentialsFolder)
    if (reading.ok) return reading.value
    const { problem, suggestion = null } = reading
    findings.push({ file: 'sternpost', path, severity: severityOf(reference, source), message: problem, suggestion })
    return empty
  }
  const { postgres } = parsed.storage
  const { token } = parsed.metrics
  const settings: ServerSettings = {
    ...parsed,
    ...namesOf(parsed),
    secrets: { master_key: read(['secrets', 'master_key'], parsed.secrets.master_key, readMasterKey, Buffer.alloc(0)) },
    storage: {
      ...parsed.storage,
      postgres: postgres && { ...postgres, url: read(['storage', 'postgres', 'url'], postgres.url, readSecret, '') },
    },
    metrics: { token: token && read(['metrics', 'token'], token, readSecret, '') },
  }
  return { settings, findings }
}

type ReadSecret<Value> = (reference: SecretReference, credentialsFolder: string | undefined) => Reading<Value>

function severityOf(reference: SecretReference, source: SecretSource): Finding['severity'] {
  const { neededSecrets, credentialsFolder } = source
  const isHere = 'file' in reference || credentialsFolder !== undefined
  const isNeeded = neededSecrets === 'all' || (neededSecrets === 'files' && isHere)
  return isNeeded ? 'error' : 'warning'
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
