/** Certificates that an authority gives out by ACME (RFC 8555), and our accounts there. Keys are sealed. */

export interface AcmeAccountRecord {
  /** URL of the authority's directory. */
  directory: string
  /** PEM. */
  sealedKey: Uint8Array
  /** null: not known to the authority yet. */
  url: string | null
}

/** What an authority looks for at a name before it issues: at port 80 (RFC 8555 §8.3), or in a handshake (RFC 8737). */
export interface AcmeProof {
  type: 'http-01' | 'tls-alpn-01'
  name: string
  token: string
  /** Key authorization of the token (RFC 8555 §8.1). */
  authorization: string
}

/** An order under way. What is saved here survives a kill, so no order is lost and none is placed twice. */
export interface AcmeOrder {
  directory: string
  /** null: about to be placed, and perhaps placed already. */
  url: string | null
  /** For its certificate, PEM. */
  sealedKey: Uint8Array
  /** null: the authority looks for none now. */
  proof: AcmeProof | null
}

interface IssuedChain {
  /** PEM. */
  chain: string
  sealedKey: Uint8Array
  renewAt: number
  /** URL of the directory of its authority; null: of an earlier version, or read while another one is ordered. */
  directory: string | null
}

export interface CertificateRecord {
  /** The first of `names`. */
  name: string
  names: string[]
  /** null: none yet. */
  issued: IssuedChain | null
  order: AcmeOrder | null
  /** Tries since the last success. */
  failures: number
  nextTryAt: number
  /** A sentence about the last try; null: it went well. */
  problem: string | null
}

/** What was wrong, and what to do where somebody has to. */
export function partsOfProblem(problem: string): { seen: string; fix: string | null } {
  const [seen = '', fix = null] = problem.split(' Fix: ')
  return { seen: seen.replace(/\.$/, ''), fix }
}

/** There is one. */
export type IssuedRecord = CertificateRecord & { issued: NonNullable<CertificateRecord['issued']> }

export interface CertificateVerbs {
  acmeAccount(directory: string): Promise<AcmeAccountRecord | null>
  saveAcmeAccount(account: AcmeAccountRecord): Promise<void>
  /** By name. */
  certificates(): Promise<CertificateRecord[]>
  /** In place of the one with this name. */
  saveCertificate(certificate: CertificateRecord): Promise<void>
  removeCertificate(name: string): Promise<void>
}
