/**
 * What the last check of the sending domain's DNS records says, as far as it bears on delivery (http/README.md
 * "Explain"). Pure.
 */
import type { DomainView } from '../../senders/domain-view.ts'

export interface ExplainedCheck {
  /** `delivery`: of a message that is `sending`, whether it moves. */
  check: 'spf' | 'dkim' | 'dmarc' | 'delivery'
  status: 'pass' | 'warn' | 'fail' | 'unknown'
  seen: string | null
}

type RecordView = DomainView['records'][number]

/** `ip`: from which the message leaves, once that is known. */
export function explainChecks({ records }: Pick<DomainView, 'records'>, ip: string | null): ExplainedCheck[] {
  // A key with a role does not sign now.
  return records.flatMap((record) => (record.role === undefined ? explainRecord(record, ip) : []))
}

function explainRecord(record: RecordView, ip: string | null): ExplainedCheck[] {
  const status = statusOf(record)
  switch (record.purpose) {
    case 'spf':
      return [{ check: 'spf', status, seen: spfSeen(record, ip) }]
    case 'dkim':
      return [{ check: 'dkim', status, seen: status === 'pass' ? selectorOf(record) : record.error }]
    case 'dmarc':
      return [{ check: 'dmarc', status, seen: record.found[0] ?? record.error ?? `no record at ${record.name}` }]
    case 'return_path':
    case 'dmarc_reports':
    case 'tracking':
      return []
  }
}

function statusOf({ status, required }: RecordView): ExplainedCheck['status'] {
  switch (status) {
    case 'verified':
      return 'pass'
    case 'temporary_failure':
      return 'unknown'
    case 'pending':
    case 'failed':
      return required ? 'fail' : 'warn'
  }
}

function spfSeen({ evaluated = [], error }: RecordView, ip: string | null): string | null {
  const found = evaluated.find((each) => each.ip === ip) ?? evaluated[0]
  return found === undefined ? error : `${found.result} for ${found.ip}`
}

/** `ps1a2b._domainkey.acme.com` -> `ps1a2b` */
function selectorOf({ name }: RecordView): string {
  return name.split('.')[0] ?? name
}
