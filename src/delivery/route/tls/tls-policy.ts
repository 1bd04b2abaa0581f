/**
 * Which TLS policy holds towards the hosts of a recipient domain: DANE, MTA-STS, required, opportunistic, in this order
 * (delivery/README.md "TLS"). What DNSSEC or a policy of the domain protects is never weakened by a failure: a host
 * whose records do not validate is skipped, one that an enforced policy does not name is left out. Rejects only when
 * the memory of policies does.
 */
import { hash } from 'node:crypto'
import { recentEntries } from '../../../base/recent-entries.ts'
import type { Configuration } from '../../../config/load-configuration.ts'
import type { FoundHost } from '../../../network/mail-hosts.ts'
import { acceptsHost, policyBytes, type MtaSts, type StsPolicy } from '../../../network/mta-sts.ts'
import type { ValidatingResolver } from '../../../network/resolver.ts'
import { isUsable, tlsaText, TRUST_ANCHOR, type TlsaRecord } from '../../../network/tlsa.ts'
import type { HostTls, TlsPolicy } from '../../protocol/host-tls.ts'

interface TlsPolicyOptions {
  /** Null: there is none, and no DANE. */
  validating: Pick<ValidatingResolver, 'tlsa'> | null
  sts: Pick<MtaSts, 'policyFor'>
  settings: () => Configuration
}

/** What is known of a domain before one of its hosts is looked at. */
export interface DomainFacts {
  domain: string
  /** DNSSEC validated its MX set. */
  isSecure: boolean
  sts: StsPolicy | null
}

export type TlsPolicies = ReturnType<typeof createTlsPolicies>

/** Policies whose text is kept for reports. */
const MOST_DESCRIBED = 20_000
const ID_CHARACTERS = 16
/** Of a policy in reports: its text is part of a key of the store, which an index of PostgreSQL has to hold. */
const MOST_TEXT_BYTES = 1_000
const MOST_LINE_CHARACTERS = 300
/** Of a host; real ones have a handful. With the others left out it may be refused, and nothing else. */
const MOST_TLSA = 20
const NO_POLICY: TlsPolicy = { type: 'none', id: '' }
const DNSSEC_CODE = '4.7.5'

export function createTlsPolicies({ validating, sts, settings }: TlsPolicyOptions) {
  const stsPolicies = recentEntries<string, StsPolicy>(MOST_DESCRIBED, policyBytes)
  const tlsaLines = recentEntries<string, string[]>(MOST_DESCRIBED, (lines) => lines.join('').length)

  const usesDane = ({ isSecure }: DomainFacts): boolean =>
    isSecure && validating !== null && settings().server.delivery.dane === 'auto'

  /** network/README.md "DANE"; undefined: DANE says nothing about this host. */
  async function daneOf(host: FoundHost, facts: DomainFacts): Promise<HostTls | undefined> {
    if (validating === null || !usesDane(facts)) return undefined
    if (host.failure !== null) return skipped(host.failure)
    if (!host.isSecure) return undefined
    // RFC 7672 §2.2.2: an alias that was validated is asked for first.
    for (const base of new Set([host.canonicalName, host.name])) {
      const answer = await validating.tlsa(`_${settings().server.delivery.port}._tcp.${base}`)
      if (answer.kind === 'no-answer') return skipped(answer.reason)
      if (answer.kind !== 'found' || answer.facts?.isSecure !== true) continue
      const lines = answer.records.map(tlsaText).toSorted()
      const policy: TlsPolicy = { type: 'dane', id: hash('sha256', lines.join('\n'), 'hex').slice(0, ID_CHARACTERS) }
      tlsaLines.set(`${host.name} ${policy.id}`, shortened(lines))
      const records = answer.records.filter(isUsable).toSorted(byEffort).slice(0, MOST_TLSA)
      // RFC 7672 §2.2: records that nobody can use still say that this host speaks TLS.
      if (records.length === 0) return { kind: 'required', by: 'DANE', policy }
      return { kind: 'dane', policy, records, names: namesFor(records, [base, host.name, facts.domain]) }
    }
    return undefined
  }

  return {
    async stsFor(domain: string): Promise<StsPolicy | null> {
      if (!settings().server.delivery.mta_sts) return null
      const policy = await sts.policyFor(domain)
      if (policy !== null) stsPolicies.set(`${domain} ${policy.id}`, policy)
      return policy
    },
    /** Whether this host may stay in the MX set, before anything is known of it. */
    mayUse: (host: string, facts: DomainFacts) =>
      facts.sts?.mode !== 'enforce' || usesDane(facts) || acceptsHost(facts.sts, host),
    /** Null: an enforced policy does not name this host. */
    async tlsOf(host: FoundHost, facts: DomainFacts): Promise<HostTls | null> {
      const dane = await daneOf(host, facts)
      if (dane !== undefined && dane.kind !== 'required') return dane
      if (facts.sts === null) return dane ?? { kind: 'opportunistic', policy: NO_POLICY }
      const policy: TlsPolicy = { type: 'sts', id: facts.sts.id }
      if (facts.sts.mode !== 'enforce') return dane ?? { kind: 'opportunistic', policy }
      return acceptsHost(facts.sts, host.name) ? { kind: 'verified', names: [host.name], by: 'sts', policy } : null
    },
    /**
     * Of a policy that was handed out lately, for reports (RFC 8460 §4.4): its lines, as its owner published it, but
     * for what is too long, and whether the MTA-STS policy names this host.
     */
    describe(domain: string, host: string, { type, id }: TlsPolicy): { lines: string[]; isListed: boolean } {
      const lines = type === 'dane' ? (tlsaLines.get(`${host} ${id}`) ?? []) : []
      const policy = type === 'sts' ? stsPolicies.get(`${domain} ${id}`) : undefined
      if (policy === undefined) return { lines, isListed: true }
      return { lines: shortened(stsLines(policy)), isListed: acceptsHost(policy, host) }
    },
  }
}

/** What a provider block or the settings ask for at least; a stronger policy stays as it is. */
export function withFloor(tls: HostTls, by: string): HostTls {
  if (tls.kind !== 'opportunistic') return tls
  const policy: TlsPolicy = tls.policy.type === 'none' ? { type: 'required', id: by } : tls.policy
  return { kind: 'required', by, policy }
}

/**
 * Equal for hosts whose connections may be shared (delivery/README.md "The SMTP session"). A policy of a domain is that
 * domain's alone.
 */
export function policyKey(domain: string, tls: HostTls): string {
  const owner = tls.policy.type === 'sts' ? domain : ''
  const names = tls.kind === 'dane' ? tls.names.join(',') : ''
  return [tls.kind, tls.policy.type, tls.policy.id, owner, names].join(':')
}

/** Those that are compared soonest first: certificates of hosts, then hashes; of these in an order that stays. */
function byEffort(left: TlsaRecord, right: TlsaRecord): number {
  return right.usage - left.usage || right.matching - left.matching || (left.data < right.data ? -1 : 1)
}

function skipped(reason: string): HostTls {
  return { kind: 'skip', policy: { type: 'dane', id: '' }, code: DNSSEC_CODE, reason }
}

/** Usage 3 needs none (RFC 7672 §3.1.1), and without them domains can share a connection. */
function namesFor(records: readonly TlsaRecord[], names: readonly string[]): string[] {
  return records.some(({ usage }) => usage === TRUST_ANCHOR) ? [...new Set(names)] : []
}

function stsLines({ mode, mx, fetchedAt, expiresAt }: StsPolicy): string[] {
  const maxAge = Math.round((expiresAt - fetchedAt) / 1_000)
  return ['version: STSv1', `mode: ${mode}`, ...mx.map((host) => `mx: ${host}`), `max_age: ${maxAge}`]
}

/** The first lines that have room, and how many do not. */
function shortened(lines: readonly string[]): string[] {
  const kept: string[] = []
  let bytes = 0
  for (const line of lines) {
    const text = line.length > MOST_LINE_CHARACTERS ? `${line.slice(0, MOST_LINE_CHARACTERS)}…` : line
    bytes += Buffer.byteLength(JSON.stringify(text))
    if (bytes > MOST_TEXT_BYTES) return [...kept, `and ${lines.length - kept.length} more`]
    kept.push(text)
  }
  return kept
}
