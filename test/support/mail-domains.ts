/**
 * Recipient domains on loopback under the protection of DANE, of MTA-STS, or of nothing: unbound as the validating
 * resolver over a signed and an unsigned zone, policies on a web server under a test authority. Beside them the names
 * of the appliance, and of a sending domain. Needs root, since policies are fetched from port 443.
 */
import { hash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:https'
import type { IncomingMessage, Server } from 'node:http'
import { addVerifiedDomain, type ApiClient } from './api-client.ts'
import { missingPrograms } from './programs.ts'
import { SIGNING_PROGRAMS, startValidatingUnbound, type SignedZone } from './signed-zones.ts'
import { createTestAuthority, type IssuedCertificate, type TestAuthority } from './test-authority.ts'
import { SENDING_DOMAIN, applianceZone } from './two-ips.ts'
import { zoneLine, type DnsRecordLine } from './unbound.ts'

export interface MailDomain {
  /** Directly below `signed.test` for DANE, else below `open.test`. Its host is `mx.<name>`. */
  name: string
  address: string
  /** It has an MTA-STS policy in mode enforce, which names its host. */
  hasPolicy?: boolean
  /** Its MX record, where somebody has changed that. */
  mx?: string
}

export interface MailDomains {
  authority: TestAuthority
  /** For every host there is; the TLSA records name it. */
  certificate: IssuedCertificate
  /** Keys of sternpost.yaml, by section, with which all of it is believed. */
  settings: Record<string, Record<string, unknown>>
  dnsServer: string
  /** Has the sending domain of `two-ips` verified. */
  prepareSender(api: ApiClient): Promise<void>
  close(): Promise<void>
}

export interface MailDomainsOptions {
  domains: readonly MailDomain[]
  /** That mail is delivered to. */
  port: number
  /** The web server's; nothing else listens there on port 443. */
  policyAddress: string
  /** Further ones, and what they hold. */
  zones?: readonly SignedZone[]
}

export function missingForMailDomains(): string | false {
  return missingPrograms(SIGNING_PROGRAMS) || (process.getuid?.() === 0 ? false : 'needs root, for port 443')
}

export async function startMailDomains(options: MailDomainsOptions): Promise<MailDomains> {
  const { domains, port, policyAddress } = options
  const authority = createTestAuthority()
  const certificate = authority.issue(domains.map(({ name }) => `mx.${name}`))
  const withPolicy = domains.filter(({ hasPolicy }) => hasPolicy === true).map(({ name }) => name)
  const web = await startPolicies(authority, withPolicy, policyAddress)
  const lines = domains.flatMap((domain) => [
    ...hostLines(domain),
    ...(domain.name.endsWith('.signed.test') ? [tlsaLine(domain.name, port, certificate)] : []),
    ...(domain.hasPolicy === true ? policyLines(domain.name, policyAddress) : []),
  ])
  const zones: SignedZone[] = [
    { name: 'signed.test', state: 'signed', records: lines.filter((line) => line.includes('.signed.test. ')) },
    { name: 'open.test', state: 'unsigned', records: lines.filter((line) => line.includes('.open.test. ')) },
    { name: 'sternpost.test', state: 'unsigned', records: applianceLines() },
    ...(options.zones ?? []),
  ]
  const unbound = await startValidatingUnbound(zones)
  return {
    authority,
    certificate,
    dnsServer: unbound.server,
    settings: { dns: { validating_resolver: unbound.server }, tls: { ca_file: authority.file } },
    async prepareSender(api) {
      const added = await api.post('/domains', { domain: SENDING_DOMAIN })
      const { records } = added.body['data'] as { records: (DnsRecordLine & { via?: string })[] }
      const published = records.filter(({ via }) => via === undefined).map((record) => zoneLine(record))
      await unbound.publish([...zones, { name: SENDING_DOMAIN, state: 'unsigned', records: published }])
      await addVerifiedDomain(api, SENDING_DOMAIN, () => {})
    },
    async close() {
      web.closeAllConnections()
      web.close()
      await once(web, 'close')
      await unbound.stop()
      authority.close()
    },
  }
}

function hostLines({ name, address, mx = `mx.${name}` }: MailDomain): string[] {
  return [zoneLine({ name, type: 'MX', value: `10 ${mx}` }), zoneLine({ name: mx, type: 'A', value: address })]
}

/** DANE-EE(3), SPKI(1), SHA2-256(1). */
function tlsaLine(name: string, port: number, { certificate }: IssuedCertificate): string {
  const key = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' })
  return `_${port}._tcp.mx.${name}. 300 IN TLSA 3 1 1 ${hash('sha256', key, 'hex')}`
}

function policyLines(name: string, address: string): string[] {
  return [
    zoneLine({ name: `_mta-sts.${name}`, type: 'TXT', value: 'v=STSv1; id=20261121' }),
    zoneLine({ name: `mta-sts.${name}`, type: 'A', value: address }),
  ]
}

function applianceLines(): string[] {
  return Object.entries(applianceZone('127.0.0.1'))
    .filter(([name]) => name.endsWith('sternpost.test'))
    .flatMap(([name, records]) =>
      Object.entries(records).flatMap(([type, values]) =>
        (values as string[]).map((value) => zoneLine({ name, type: type as DnsRecordLine['type'], value })),
      ),
    )
}

async function startPolicies(authority: TestAuthority, domains: readonly string[], address: string): Promise<Server> {
  const { key, chain } = authority.issue(['mta-sts.test', ...domains.map((name) => `mta-sts.${name}`)])
  const server = createServer({ key, cert: chain }, ({ headers }: IncomingMessage, response) => {
    const name = headers.host?.replace(/^mta-sts\./, '') ?? ''
    response.setHeader('Content-Type', 'text/plain')
    response.end(`version: STSv1\r\nmode: enforce\r\nmx: mx.${name}\r\nmax_age: 604800\r\n`)
  })
  server.listen(443, address)
  await once(server, 'listening')
  return server
}
