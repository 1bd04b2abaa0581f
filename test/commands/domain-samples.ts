/**
 * Sending domains as the API shows them, for the tests of what the command prints.
 */
import type { DomainAuthentication } from '../../src/senders/domain-authentication.ts'
import type { DomainView, RecordView } from '../../src/senders/domain-view.ts'

export const RSA_VALUE = `v=DKIM1; k=rsa; p=${'MIIB'.repeat(98)}`

export function sampleDomain(changes: Partial<DomainView> = {}): DomainView {
  return {
    domain: 'acme.com',
    status: 'pending',
    verified: false,
    can_send: false,
    created_at: 1_795_219_200,
    verified_at: null,
    last_checked_at: 1_795_219_260,
    next_check_at: 1_795_219_500,
    return_path: 'bounces.acme.com',
    tracking: { opens: true, clicks: false, domain: 't.acme.com', tls: 'pending' },
    ip_pool: 'default',
    allow_subdomains: false,
    records: sampleRecords(),
    ...changes,
  }
}

export function sampleAuthentication(
  domain = 'acme.com',
  changes: Partial<DomainAuthentication> = {},
): DomainAuthentication {
  const source = (ip: string | null, known: boolean, messages: number, failed: number) => ({
    ip,
    known,
    messages,
    passed: messages - failed,
    failed,
    dkim_passed: messages - failed,
    spf_passed: 0,
    quarantined: 0,
    rejected: failed,
    first_day: '2026-11-19',
    last_day: '2026-11-20',
  })
  return {
    domain,
    from: '2026-10-23',
    to: '2026-11-21',
    policy: 'none',
    hint: 'publish p=quarantine',
    dmarc: {
      reports: 3,
      reporters: ['google.com', 'Yahoo'],
      messages: 1204,
      passed: 1200,
      failed: 4,
      sources: [
        source('203.0.113.10', true, 1000, 0),
        source('203.0.113.11', true, 200, 0),
        source('203.0.113.9', false, 4, 4),
      ],
      days: [{ day: '2026-11-20', messages: 1204, passed: 1200, failed: 4 }],
    },
    tls: [
      {
        domain,
        successful: 5326,
        failed: 100,
        failures: [{ result: 'certificate-expired', sessions: 100 }],
        days: [{ day: '2026-11-20', successful: 5326, failed: 100 }],
      },
    ],
    ...changes,
  }
}

export function verifiedDomain(name = 'acme.com'): DomainView {
  const records = sampleRecords().map((record) => ({ ...record, status: 'verified' as const, error: null, hint: null }))
  return sampleDomain({ domain: name, status: 'verified', verified: true, can_send: true, verified_at: 1, records })
}

export function sampleRecords(): RecordView[] {
  return [
    sampleRecord({
      purpose: 'dkim',
      required: true,
      name: 'ps1._domainkey.acme.com',
      host: 'ps1._domainkey',
      value: RSA_VALUE,
      value_chunks: [RSA_VALUE.slice(0, 255), RSA_VALUE.slice(255)],
      status: 'failed',
      found: [RSA_VALUE.slice(0, 255)],
      error: 'the record at ps1._domainkey.acme.com is no DKIM key',
      hint: 'cut at 255 bytes',
    }),
    sampleRecord({
      purpose: 'return_path',
      required: true,
      type: 'CNAME',
      name: 'bounces.acme.com',
      host: 'bounces',
      value: 'rp.mail.example.net',
    }),
    sampleRecord({
      purpose: 'spf',
      required: true,
      via: 'return_path',
      name: 'bounces.acme.com',
      host: 'bounces',
      value: 'v=spf1 include:spf.mail.example.net -all',
      evaluated: [{ ip: '203.0.113.10', result: 'none' }],
    }),
    sampleRecord({ purpose: 'dmarc', name: '_dmarc.acme.com', host: '_dmarc', value: 'v=DMARC1; p=none' }),
  ]
}

export function sampleRecord(changes: Partial<RecordView>): RecordView {
  return {
    purpose: 'dkim',
    required: false,
    type: 'TXT',
    name: 'x.acme.com',
    host: 'x',
    value: 'v',
    ttl: 3_600,
    status: 'pending',
    found: [],
    error: null,
    hint: null,
    checked_at: null,
    ...changes,
  }
}
