/**
 * Checks within `sternpost.yaml` that span several keys: limits that must fit together, doors that would be open, and
 * switches for tests that are on.
 */
import { MINUTE } from '../../base/clock.ts'
import { isLoopback } from '../../base/ip-address.ts'
import { certificateChecks } from './certificate-checks.ts'
import { durationText } from '../settings/field-types.ts'
import { errorAt, warningAt, type Finding } from '../source/finding.ts'
import type { ServerSettings } from '../settings/server-settings.ts'

/** Time to write down an answer to the final dot that came at the last moment (store/README.md "Leases and claims"). */
const LEASE_RESERVE = 2 * MINUTE
const SMTP_PORT = 25

export function serverChecks(server: ServerSettings, now: number): Finding[] {
  return [...limitChecks(server), ...doorChecks(server), ...testSwitches(server), ...certificateChecks(server, now)]
}

function limitChecks({ api, delivery, dns, storage }: ServerSettings): Finding[] {
  const findings: Finding[] = []
  const leastLease = delivery.timeouts.final_dot + LEASE_RESERVE
  if (delivery.lease <= leastLease) {
    const text = `${durationText(delivery.lease)} is too short; it must be above ${durationText(leastLease)}`
    findings.push(errorAt('sternpost', ['delivery', 'lease'], `${text} (timeouts.final_dot and 2m)`))
  }
  if (api.recipients_burst < api.batch_recipients) {
    const text = `${api.recipients_burst} is below batch_recipients (${api.batch_recipients})`
    findings.push(errorAt('sternpost', ['api', 'recipients_burst'], text, String(api.batch_recipients)))
  }
  if (dns.cache.min_ttl > dns.cache.max_ttl) {
    const text = `${durationText(dns.cache.min_ttl)} is above max_ttl (${durationText(dns.cache.max_ttl)})`
    findings.push(errorAt('sternpost', ['dns', 'cache', 'min_ttl'], text))
  }
  if (storage.engine === 'postgres') {
    findings.push(errorAt('sternpost', ['storage', 'engine'], 'postgres is not in this version', 'sqlite'))
  }
  return findings
}

/** What may be open to this machine, but not to the network. */
function doorChecks({ dns, listen, metrics }: ServerSettings): Finding[] {
  const findings: Finding[] = []
  for (const [index, { address, tls }] of listen.submission.entries()) {
    if (tls === 'none' && !isLoopback(address)) {
      const text = 'keys would cross the network in plain text: tls: none is for loopback addresses alone'
      findings.push(errorAt('sternpost', ['listen', 'submission', index, 'tls'], text, 'starttls'))
    }
  }
  if (listen.metrics !== null && metrics.token === null && !isLoopback(listen.metrics.address)) {
    const text = 'an address that is not loopback needs metrics.token'
    findings.push(errorAt('sternpost', ['listen', 'metrics', 'address'], text))
  }
  const resolver = dns.validating_resolver
  if (resolver !== null && !isLoopback(resolver) && !isLoopback(withoutPort(resolver))) {
    const text = `${resolver} is not loopback: the answer "validated" is worth nothing over a network`
    findings.push(errorAt('sternpost', ['dns', 'validating_resolver'], text))
  }
  return findings
}

/** `127.0.0.1:53` or `[::1]:53`. */
function withoutPort(server: string): string {
  // A port at the end, and brackets around what is left.
  return server.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1')
}

function testSwitches({ delivery, webhooks }: ServerSettings): Finding[] {
  const findings: Finding[] = []
  if (delivery.port !== SMTP_PORT) {
    const text = `mail goes to port ${delivery.port}, where no other server listens; this is for tests`
    findings.push(warningAt('sternpost', ['delivery', 'port'], text))
  }
  if (delivery.allow_private_addresses) {
    const text = 'mail may go to private addresses; this is for tests'
    findings.push(warningAt('sternpost', ['delivery', 'allow_private_addresses'], text))
  }
  if (webhooks.allow_http) {
    findings.push(
      warningAt('sternpost', ['webhooks', 'allow_http'], 'events may go over plain http; this is for tests'),
    )
  }
  if (webhooks.allow_private_addresses) {
    const text = 'events may go to private addresses, which customers could use to reach inside'
    findings.push(warningAt('sternpost', ['webhooks', 'allow_private_addresses'], text))
  }
  return findings
}
