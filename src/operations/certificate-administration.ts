/**
 * The certificates of our doors as administrators see them: those of files and those that are ordered, until when they
 * hold, what is wrong, and a renewal by hand. No key leaves here, only the hash of a public one. ServiceError
 * `not_found` for a name that none is ordered for, `conflict` where none can be ordered now.
 */
import { createHash, X509Certificate } from 'node:crypto'
import { errorText, ServiceError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import { readRegularFile } from '../base/regular-file.ts'
import type { FilePair } from '../base/service/server-certificates.ts'
import type { CertificateAdministration, CertificateState } from '../http/exchange/operator-features.ts'
import { partsOfProblem, type CertificateRecord } from '../store/records/certificate-records.ts'

const NOT_ORDERED = 'certificates come from files alone; to have them ordered: tls.acme in sternpost.yaml'

interface AdministrationParts {
  doorCertificates: { files(): readonly Pick<FilePair, 'cert_file' | 'cert'>[] }
  /** null: no authority is asked. */
  issuing: {
    list(): Promise<CertificateRecord[]>
    renew(name: string, withNewKey: boolean): Promise<boolean>
    run(): Promise<void>
  } | null
  /** Where an order goes that is not placed yet. */
  directory: string | null
  keepsKey: boolean
  logger: Logger
}

export function createCertificateAdministration(parts: AdministrationParts): CertificateAdministration {
  const { doorCertificates, issuing, logger } = parts
  const all = async (): Promise<CertificateState[]> => [
    ...doorCertificates.files().map(ofFile),
    ...((await issuing?.list()) ?? []).map((record) => ofOrder(record, parts)),
  ]
  return {
    certificates: all,
    async renewCertificate(name, withNewKey) {
      if (issuing === null) throw new ServiceError('conflict', NOT_ORDERED)
      const isKnown = (await issuing.list()).some((each) => each.name === name)
      if (!isKnown) throw new ServiceError('not_found', `no certificate for ${name} is ordered here`)
      if (!(await issuing.renew(name, withNewKey))) throw new ServiceError('conflict', `${name} is being ordered now`)
      issuing.run().catch((thrown: unknown) => logger.error({ err: thrown }, 'certificates could not be ordered'))
    },
  }
}

function ofOrder(record: CertificateRecord, { directory, keepsKey }: AdministrationParts): CertificateState {
  const { name, names, issued, order, problem, nextTryAt } = record
  const asked = { name, names, source: 'acme', file: null, keepsKey } as const
  const told = problem === null ? { problem: null, fix: null } : problemOf(problem)
  const nextTry = { nextTryAt: problem === null ? null : nextTryAt }
  if (issued === null) {
    const authority = order?.directory ?? directory
    return { ...asked, ...told, ...nextTry, authority, endsAt: null, renewsAt: null, tlsa: null }
  }
  return { ...asked, ...told, ...nextTry, ...factsOf(issued.chain), renewsAt: issued.renewAt }
}

function problemOf(problem: string): Pick<CertificateState, 'problem' | 'fix'> {
  const { seen, fix } = partsOfProblem(problem)
  return { problem: seen, fix }
}

/** What our doors show, and whether that is still what lies in the file. */
function ofFile({ cert_file: file, cert }: Pick<FilePair, 'cert_file' | 'cert'>): CertificateState {
  const names = namesIn(cert)
  const known = { source: 'file', file, keepsKey: true, renewsAt: null, nextTryAt: null } as const
  return { ...known, ...changeOf(file, cert), name: names[0] ?? file, names, ...factsOf(cert) }
}

function changeOf(file: string, cert: string | Buffer): Pick<CertificateState, 'problem' | 'fix'> {
  try {
    if (readRegularFile(file).equals(Buffer.from(cert))) return { problem: null, fix: null }
    return { problem: `${file} has another one, which is not in use yet`, fix: 'sternpost reload' }
  } catch (thrown) {
    return { problem: errorText(thrown), fix: 'put it back, then: sternpost reload' }
  }
}

function namesIn(certificate: string | Buffer): string[] {
  const { subjectAltName = '' } = new X509Certificate(certificate)
  return subjectAltName.split(', ').flatMap((part) => (part.startsWith('DNS:') ? [part.slice('DNS:'.length)] : []))
}

function factsOf(certificate: Buffer | string): Pick<CertificateState, 'authority' | 'endsAt' | 'tlsa'> {
  const parsed = new X509Certificate(certificate)
  const { CN: common, O: organization } = parsed.toLegacyObject().issuer
  const publicKey = parsed.publicKey.export({ type: 'spki', format: 'der' })
  return {
    authority: [organization, common].filter((part) => part !== undefined).join(', '),
    endsAt: parsed.validToDate.getTime(),
    // RFC 7671 §5.1: DANE-EE, the public key, SHA-256.
    tlsa: `3 1 1 ${createHash('sha256').update(publicKey).digest('hex')}`,
  }
}
