/**
 * What the DNS says of the domains that send: DKIM, return path, SPF for each IP, DMARC, tracking name (
 * health/README.md "Checks": domain-*). The server has the judgement; here it becomes findings with what to publish
 * instead.
 */
import type { DomainView, RecordView } from '../../senders/domain-view.ts'
import { DNS_FIX } from './check-ip-names.ts'
import { verdicts, type HealthFinding, type Verdicts } from './finding.ts'
import type { HealthCheck } from './world.ts'

const PURPOSES: Readonly<Record<RecordView['purpose'], Verdicts>> = {
  dkim: verdicts('domain-dkim', 'Without a valid signature large providers refuse or junk the mail.'),
  return_path: verdicts('domain-return-path', 'Bounces of the domain have to reach this server.'),
  spf: verdicts('domain-spf', 'Receivers ask SPF whether the sending IP may use the domain.'),
  dmarc: verdicts('domain-dmarc', 'Large providers demand a DMARC record of bulk senders.'),
  tracking: verdicts('domain-tracking', 'Links and pixels of the domain lead to this name.'),
}
const DOMAIN = verdicts('domain', 'Only a verified domain sends.')
const PLATFORM = verdicts('domain', 'Feedback loops know the mail of this server by the signature of this domain.')

export const checkDomains: HealthCheck = {
  id: 'domain',
  place: 'server',
  async run({ server, domain, configuration }) {
    if (server === null) return []
    const domains = await server.domains(domain)
    const ofPlatform = platformFindings(configuration.server.domains.dkim.platform_domain, domain, domains)
    if (domains.length > 0) return [...shortened(domains.flatMap(ofDomain), domains.length), ...ofPlatform]
    if (domain === null) return [DOMAIN.skip(null, 'no domain is verified yet'), ...ofPlatform]
    return [
      DOMAIN.fail(
        domain,
        'it is not there, or was never verified',
        `sternpost domain list; sternpost domain check ${domain}`,
      ),
      ...ofPlatform,
    ]
  },
}

/** What it does not sign is sent all the same: nobody would see it. */
function platformFindings(
  platform: string | null,
  asked: string | null,
  domains: readonly DomainView[],
): HealthFinding[] {
  if (platform === null || (asked !== null && asked !== platform)) return []
  if (domains.some((view) => view.domain === platform && view.can_send)) return []
  return [
    PLATFORM.warn(
      platform,
      'domains.dkim.platform_domain names it, but it cannot send here: it signs no mail',
      `sternpost domain add ${platform}, and verify it; or set domains.dkim.platform_domain to null`,
    ),
  ]
}

/** With thousands of domains nobody reads what is well, nor the same fault of each. */
const MOST_FINDINGS = 500

function shortened(findings: HealthFinding[], domains: number): HealthFinding[] {
  if (findings.length <= MOST_FINDINGS) return findings
  const troubled = findings.filter(({ result }) => result !== 'ok')
  const left = troubled.length - MOST_FINDINGS
  if (left > 0) {
    const rest = DOMAIN.fail(null, `${left} more findings are not shown`, 'sternpost doctor domain --domain <name>')
    return [...troubled.slice(0, MOST_FINDINGS), rest]
  }
  const well = findings.length - troubled.length
  return [DOMAIN.ok(null, `${well} records of ${domains} domains are as they should be`), ...troubled]
}

function ofDomain(view: DomainView): HealthFinding[] {
  const findings = view.records.filter(({ role }) => role === undefined).map((record) => ofRecord(view, record))
  if (view.can_send) return findings
  return [
    ...findings,
    DOMAIN.fail(
      view.domain,
      `its state is ${view.status}: mail of it is refused`,
      `mend its records, then: sternpost domain check ${view.domain}`,
    ),
  ]
}

function ofRecord({ domain, records }: DomainView, record: RecordView): HealthFinding {
  const { ok, warn, fail } = PURPOSES[record.purpose]
  const { status, found, error, hint, required } = record
  if (status === 'verified') return ok(domain, found[0] ?? 'as it should be')
  if (status === 'temporary_failure') return warn(domain, error ?? 'the DNS did not answer', DNS_FIX)
  const seen = [error ?? `nothing is published at ${record.name}`, ...(hint === null ? [] : [hint])].join('; ')
  const shown = found.length === 0 ? seen : `${seen}; found: ${found.join(' | ')}`
  // What another record brings along cannot stand beside it (RFC 1034 §3.6.2).
  const wanted = records.find(({ purpose }) => purpose === record.via) ?? record
  const fix = `publish: ${wanted.name}. ${wanted.type} ${valueOf(wanted)}; then: sternpost domain check ${domain}`
  return required ? fail(domain, shown, fix) : warn(domain, shown, fix)
}

function valueOf({ type, value }: RecordView): string {
  return type === 'TXT' ? `"${value}"` : `${value}.`
}
