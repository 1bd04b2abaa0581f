/**
 * DANE with usage 2: does a chain lead from the host's certificate to an authority that a TLSA record names? Pure;
 * never throws. The certificates may come in any order and with others between; each link is checked by names,
 * signature, the right to sign, and dates; the host's own must be one for servers. Constraints on names and on the
 * length of the chain are not looked at: Node does not show them. The authority itself has to be in the chain (RFC 7671
 * §5.2.2), or to stand whole in the record. RFC 7672 §3.1.2.
 */
import { createPublicKey, X509Certificate, type KeyObject } from 'node:crypto'
import { matches, type TlsaRecord } from '../../network/tlsa.ts'

/** What is wrong with a certificate: a result type of RFC 8460 §4.3, and words. */
export interface CertificateProblem {
  result:
    | 'certificate-host-mismatch'
    | 'certificate-expired'
    | 'certificate-not-trusted'
    | 'validation-failure'
    | 'tlsa-invalid'
  text: string
}

const SERVER_AUTHENTICATION = '1.3.6.1.5.5.7.3.1'
const ANY_USAGE = '2.5.29.37.0'
/** Longer chains are cut; real ones have four at most. */
export const MOST_CERTIFICATES = 10

/** Null: the chain is right. `anchors` are usable records of usage 2. */
export function anchorProblem(
  chain: readonly X509Certificate[],
  anchors: readonly TlsaRecord[],
  now: number,
): CertificateProblem | null {
  const [own] = chain
  if (own === undefined || !leadsToAnchor(own, { chain, anchors })) {
    return { result: 'tlsa-invalid', text: 'no TLSA record names the certificate or an authority above it' }
  }
  if (!isForServers(own)) return { result: 'certificate-not-trusted', text: 'the certificate is not for servers' }
  if (isInTime(own, now) && leadsToAnchor(own, { chain: chain.filter((each) => isInTime(each, now)), anchors })) {
    return null
  }
  return { result: 'certificate-expired', text: 'a certificate of the chain has expired, or is not valid yet' }
}

interface Search {
  chain: readonly X509Certificate[]
  anchors: readonly TlsaRecord[]
}

/** Every certificate is gone up from once at most, so a chain of many that sign each other ends as well. */
function leadsToAnchor(own: X509Certificate, { chain, anchors }: Search): boolean {
  const reached = new Set([own])
  for (const certificate of reached) {
    if (anchors.some((anchor) => isSignedByRecord(certificate, anchor))) return true
    for (const issuer of chain.filter((each) => !reached.has(each) && isIssuer(each, certificate))) {
      if (anchors.some((anchor) => matches(anchor, issuer.raw))) return true
      reached.add(issuer)
    }
  }
  return false
}

function isIssuer(issuer: X509Certificate, certificate: X509Certificate): boolean {
  return issuer.ca && certificate.checkIssued(issuer) && isSignedBy(certificate, () => issuer.publicKey)
}

/** A record without a hash is the authority's certificate or key itself. */
function isSignedByRecord(certificate: X509Certificate, { selector, matching, data }: TlsaRecord): boolean {
  if (matching !== 0) return false
  const bytes = Buffer.from(data, 'hex')
  try {
    if (selector === 0) return isIssuer(new X509Certificate(bytes), certificate)
    return isSignedBy(certificate, () => createPublicKey({ key: bytes, format: 'der', type: 'spki' }))
  } catch {
    // What stands in the record is neither: it names nobody.
    return false
  }
}

function isSignedBy(certificate: X509Certificate, keyOf: () => KeyObject): boolean {
  try {
    return certificate.verify(keyOf())
  } catch {
    // A key that cannot be read, or of a kind that can not verify at all.
    return false
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
