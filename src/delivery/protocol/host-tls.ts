/**
 * What is asked of TLS towards one host, and whether a peer's certificate is what was asked for. Pure but for looking
 * at the socket it is given, whose handshake has let every certificate pass. delivery/README.md "TLS", RFC 7672 §3, RFC
 * 8461 §4.2.
 */
import { createPublicKey, X509Certificate, type KeyObject } from 'node:crypto'
import type { DetailedPeerCertificate, TLSSocket } from 'node:tls'
import { END_ENTITY, isUsable, matches, type TlsaRecord } from '../../network/tlsa.ts'

export type { TlsaRecord } from '../../network/tlsa.ts'

const SERVER_AUTHENTICATION = '1.3.6.1.5.5.7.3.1'
const ANY_USAGE = '2.5.29.37.0'
/** Longer chains are cut; real ones have four at most. */
const MOST_CERTIFICATES = 10
/** Of one handshake. A host chooses its certificates and keys, and so how long each takes: the others count as wrong. */
const MOST_SIGNATURES = 50

/** Where the demand comes from, for records and reports. */
export interface TlsPolicy {
  type: 'dane' | 'sts' | 'required' | 'none'
  /** Of the MTA-STS policy, of the TLSA set, or who requires it; empty where there is none. */
  id: string
}

export type HostTls = { policy: TlsPolicy } & (
  | { kind: 'plain'; reason: string } // TLS failed here before, and it is remembered
  | { kind: 'opportunistic' } // STARTTLS when announced; one plain reconnect when it fails, reported
  | { kind: 'required'; by: string } // STARTTLS, any certificate
  | { kind: 'verified'; names: string[]; by: 'sts' } // STARTTLS, a chain to a known root, one of the names
  | { kind: 'dane'; records: TlsaRecord[]; names: string[] } // STARTTLS, a certificate that a record names
  | { kind: 'skip'; code: string; reason: string } // the host is not tried: its DNSSEC is bogus
)

export interface PeerVerdict {
  /** False: nothing may be sent over this connection. Always true where the policy takes any certificate. */
  isAcceptable: boolean
  /** See TlsFacts. */
  isVerified: boolean
  /** What is wrong with the certificate; null: nothing. */
  problem: string | null
  /** `success`, or a result type of RFC 8460 §4.3. */
  result: string
}

/** What a peer showed in its handshake. */
export interface Peer {
  /** Its own certificate first, each followed by the one that issued it. */
  chain: X509Certificate[]
  /** OpenSSL's word for what is wrong with the chain, by the known roots; null: nothing. */
  chainProblem: string | null
}

/**
 * Of a finished handshake, made without checks (`rejectUnauthorized: false`). Throws for a certificate that cannot be
 * read. By `getPeerCertificate`, as `getPeerX509Certificate` gives the chain once only and takes it off the socket.
 */
export function readPeer(socket: TLSSocket): Peer {
  const chain: X509Certificate[] = []
  let shown: Partial<DetailedPeerCertificate> = socket.getPeerCertificate(true)
  while (shown.raw !== undefined && chain.length < MOST_CERTIFICATES) {
    chain.push(new X509Certificate(shown.raw))
    // A root is its own issuer.
    if (shown.issuerCertificate === undefined || shown.issuerCertificate === shown) break
    shown = shown.issuerCertificate
  }
  const error: unknown = socket.authorizationError
  const problem = error instanceof Error ? error.message : String(error ?? 'unknown')
  return { chain, chainProblem: socket.authorized ? null : problem }
}

/** `now`: of the real world, as certificates count. */
export function judgePeer(peer: Peer, host: string, tls: HostTls, now: number): PeerVerdict {
  switch (tls.kind) {
    case 'verified':
      return strict(publicProblem(peer, tls.names))
    case 'dane':
      return strict(daneProblem(peer, tls, now))
    default: {
      // Any certificate is taken; what is known of it goes into the records.
      const problem = publicProblem(peer, [host])
      const isReported = tls.policy.type === 'sts' || tls.policy.type === 'dane'
      // A TLSA set without a usable record asks for TLS alone, and its owner wants to know (RFC 7672 §2.2).
      const reported = tls.policy.type === 'dane' ? 'tlsa-invalid' : (problem?.result ?? 'success')
      const result = isReported ? reported : 'success'
      return { isAcceptable: true, isVerified: problem === null, problem: problem?.text ?? null, result }
    }
  }
}

/** Null: there is none. */
type Problem = CertificateProblem | null

function strict(problem: Problem): PeerVerdict {
  const isVerified = problem === null
  return { isAcceptable: isVerified, isVerified, problem: problem?.text ?? null, result: problem?.result ?? 'success' }
}

/** By the roots that everybody knows (RFC 8461 §4.2). */
function publicProblem({ chain, chainProblem }: Peer, names: readonly string[]): Problem {
  const [own] = chain
  if (own === undefined) return { result: 'validation-failure', text: 'the host showed no certificate' }
  if (chainProblem !== null) {
    return CHAIN_PROBLEMS[chainProblem] ?? { result: UNTRUSTED, text: notTrusted(chainProblem) }
  }
  return nameProblem(own, names, 'never')
}

/** RFC 7672 §3.1: usage 3 names the certificate itself, whatever else it says; usage 2 an authority above it. */
function daneProblem({ chain }: Peer, tls: Extract<HostTls, { kind: 'dane' }>, now: number): Problem {
  const { records, names } = tls
  const [own] = chain
  if (own === undefined) return { result: 'validation-failure', text: 'the host showed no certificate' }
  const usable = records.filter(isUsable)
  if (usable.some((record) => record.usage === END_ENTITY && matches(record, own.raw))) return null
  const anchors = usable.filter(({ usage }) => usage !== END_ENTITY)
  if (anchors.length === 0) return { result: 'tlsa-invalid', text: 'no TLSA record names the certificate' }
  return anchorProblem(chain, anchors, now) ?? nameProblem(own, names, 'default')
}

function nameProblem(own: X509Certificate, names: readonly string[], subject: 'never' | 'default'): Problem {
  const rules = { subject, wildcards: true, partialWildcards: false, multiLabelWildcards: false }
  const isNamed = names.some((name) => own.checkHost(name, rules) !== undefined)
  if (isNamed) return null
  return { result: 'certificate-host-mismatch', text: `the certificate is not for ${names.join(' or ')}` }
}

const UNTRUSTED = 'certificate-not-trusted'
const UNKNOWN: CertificateProblem = { result: UNTRUSTED, text: 'the certificate comes from an unknown authority' }
/** By the codes of OpenSSL; all others are a matter of trust. */
const CHAIN_PROBLEMS: Record<string, CertificateProblem> = {
  CERT_HAS_EXPIRED: { result: 'certificate-expired', text: 'the certificate has expired' },
  CERT_NOT_YET_VALID: { result: 'validation-failure', text: 'the certificate is not valid yet' },
  CERT_SIGNATURE_FAILURE: { result: 'validation-failure', text: notTrusted('CERT_SIGNATURE_FAILURE') },
  DEPTH_ZERO_SELF_SIGNED_CERT: { result: UNTRUSTED, text: 'the certificate is self-signed' },
  SELF_SIGNED_CERT_IN_CHAIN: UNKNOWN,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNKNOWN,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNKNOWN,
}

function notTrusted(code: string): string {
  return `the certificate is not trusted (${code})`
}

/** What is wrong with a certificate: a result type of RFC 8460 §4.3, and words. */
interface CertificateProblem {
  result:
    | 'certificate-host-mismatch'
    | 'certificate-expired'
    | 'certificate-not-trusted'
    | 'validation-failure'
    | 'tlsa-invalid'
  text: string
}

/**
 * DANE with usage 2: does a chain lead from the host's certificate to an authority that a TLSA record names? Null: it
 * does. `anchors` are usable records of usage 2. The certificates may come in any order and with others between; each
 * link is checked by names, signature, the right to sign, and dates; the host's own must be one for servers.
 * Constraints on names and on the length of the chain are not looked at: Node does not show them. The authority itself
 * has to be in the chain (RFC 7671 §5.2.2), or to stand whole in the record. RFC 7672 §3.1.2.
 */
function anchorProblem(chain: readonly X509Certificate[], anchors: readonly TlsaRecord[], now: number): Problem {
  const [own] = chain
  const isSignedBy = createSignatureCheck()
  if (own === undefined || !leadsToAnchor(own, chain, anchors, isSignedBy)) {
    return { result: 'tlsa-invalid', text: 'no TLSA record names the certificate or an authority above it' }
  }
  if (!isForServers(own)) return { result: 'certificate-not-trusted', text: 'the certificate is not for servers' }
  const inTime = chain.filter((each) => isInTime(each, now))
  if (inTime.includes(own) && leadsToAnchor(own, inTime, anchors, isSignedBy)) return null
  return { result: 'certificate-expired', text: 'a certificate of the chain has expired, or is not valid yet' }
}

/** Every certificate is gone up from once at most, so a chain of many that sign each other ends as well. */
function leadsToAnchor(
  own: X509Certificate,
  chain: readonly X509Certificate[],
  anchors: readonly TlsaRecord[],
  isSignedBy: SignatureCheck,
): boolean {
  const reached = new Set([own])
  for (const certificate of reached) {
    if (anchors.some((anchor) => isSignedByRecord(certificate, anchor, isSignedBy))) return true
    for (const issuer of chain.filter((each) => !reached.has(each) && isIssuer(each, certificate, isSignedBy))) {
      if (anchors.some((anchor) => matches(anchor, issuer.raw))) return true
      reached.add(issuer)
    }
  }
  return false
}

function isIssuer(issuer: X509Certificate, certificate: X509Certificate, isSignedBy: SignatureCheck): boolean {
  return issuer.ca && certificate.checkIssued(issuer) && isSignedBy(certificate, () => issuer.publicKey)
}

/** A record without a hash is the authority's certificate or key itself. */
function isSignedByRecord(certificate: X509Certificate, record: TlsaRecord, isSignedBy: SignatureCheck): boolean {
  const { selector, matching, data } = record
  if (matching !== 0) return false
  const bytes = Buffer.from(data, 'hex')
  try {
    if (selector === 0) return isIssuer(new X509Certificate(bytes), certificate, isSignedBy)
    return isSignedBy(certificate, () => createPublicKey({ key: bytes, format: 'der', type: 'spki' }))
  } catch {
    // What stands in the record is neither: it names nobody.
    return false
  }
}

type SignatureCheck = (certificate: X509Certificate, keyOf: () => KeyObject) => boolean

function createSignatureCheck(): SignatureCheck {
  let left = MOST_SIGNATURES
  return (certificate, keyOf) => {
    if (left-- <= 0) return false
    try {
      return certificate.verify(keyOf())
    } catch {
      // A key that cannot be read, or of a kind that cannot verify at all.
      return false
    }
  }
}

/** Without an extended key usage it is for everything (RFC 5280 §4.2.1.12). */
function isForServers({ keyUsage }: X509Certificate): boolean {
  const usages: readonly string[] | undefined = keyUsage
  return usages === undefined || usages.includes(SERVER_AUTHENTICATION) || usages.includes(ANY_USAGE)
}

function isInTime({ validFromDate, validToDate }: X509Certificate, now: number): boolean {
  return validFromDate.getTime() <= now && now <= validToDate.getTime()
}
