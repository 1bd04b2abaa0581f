/**
 * Sending domains as the API shows them, for the tests of what the command prints.
 */
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
