/**
 * Certificates of our TLS listeners, chosen by the name that the client asks for (SNI, RFC 6066 §3): the first that has
 * not ended. The first of all is the default. Throws ProcessExit 78 naming the file that cannot be read or does not fit.
 */
import { X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContext, type SecureVersion } from 'node:tls'
import { readRegularFile } from '../regular-file.ts'
import { errorText, EXIT, ProcessExit } from '../errors.ts'

export interface CertificateFiles {
  cert_file: string
  key_file: string
}

/** PEM. */
export interface KeyPair {
  cert: string | Buffer
  key: string | Buffer
}

/** As it was read: what is written to the files later is not shown. */
export type FilePair = CertificateFiles & KeyPair

export type ServerCertificates = ReturnType<typeof serverCertificates>

/** The first is the default. Throws what node:tls throws of a pair that does not fit. */
export function serverCertificates(pairs: readonly [KeyPair, ...KeyPair[]], minVersion: SecureVersion) {
  const certificates = pairs.map((pair) => usable(pair, minVersion))
  const find = (serverName: string): UsableCertificate[] =>
    certificates.filter(({ parsed }) => parsed.checkHost(serverName) !== undefined)
  // Names are asked for again and again, by whoever connects: only those that are found are remembered.
  const known = new Map<string, UsableCertificate[]>()
  const chosen = (serverName: string): UsableCertificate | undefined => {
    const found = known.get(serverName) ?? find(serverName)
    if (found.length > 0 && known.size < MOST_KNOWN_NAMES) known.set(serverName, found)
    return found.find(({ parsed }) => parsed.validToDate.getTime() > Date.now()) ?? found[0]
  }
  return {
    default: pairs[0],
    minVersion,
    contextFor: (serverName: string): SecureContext | undefined => chosen(serverName)?.context,
    /** Until when clients accept us under this name, Unix milliseconds; 0: they do not. */
    endFor: (serverName: string): number => chosen(serverName)?.parsed.validToDate.getTime() ?? 0,
  }
}

interface UsableCertificate {
  parsed: X509Certificate
  context: SecureContext
}

/** A wildcard fits any number of names. */
const MOST_KNOWN_NAMES = 10_000
/** With hundreds of certificates one more does not make all of them anew. */
const usableOf = new WeakMap<KeyPair, { minVersion: SecureVersion; certificate: UsableCertificate }>()

function usable(pair: KeyPair, minVersion: SecureVersion): UsableCertificate {
  const known = usableOf.get(pair)
  if (known?.minVersion === minVersion) return known.certificate
  const { cert, key } = pair
  const certificate = { parsed: new X509Certificate(cert), context: createSecureContext({ cert, key, minVersion }) }
  usableOf.set(pair, { minVersion, certificate })
  return certificate
}

export function readServerCertificates(files: readonly CertificateFiles[], minVersion: SecureVersion) {
  const [first, ...others] = readKeyPairs(files, minVersion)
  if (first !== undefined) return serverCertificates([first, ...others], minVersion)
  throw new ProcessExit(EXIT.configuration, 'tls.certificates: a TLS listener needs a certificate')
}

export function readKeyPairs(files: readonly CertificateFiles[], minVersion: SecureVersion): FilePair[] {
  return files.map(({ cert_file, key_file }) => {
    try {
      const pair = { cert_file, key_file, cert: readRegularFile(cert_file), key: readRegularFile(key_file) }
      serverCertificates([pair], minVersion)
      return pair
    } catch (cause) {
      const message = `tls.certificates: ${cert_file} with ${key_file} cannot be used: ${errorText(cause)}`
      throw new ProcessExit(EXIT.configuration, message, { cause })
    }
  })
}
