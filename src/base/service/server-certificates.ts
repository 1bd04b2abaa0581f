/**
 * Certificates of our TLS listeners, chosen by the name that the client asks for (SNI, RFC 6066 §3); the first is the
 * default. Throws ProcessExit 78 naming the file that cannot be read or does not fit.
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

export type ServerCertificates = ReturnType<typeof serverCertificates>

/** The first is the default. Throws what node:tls throws of a pair that does not fit. */
export function serverCertificates(pairs: readonly [KeyPair, ...KeyPair[]], minVersion: SecureVersion) {
  const certificates = pairs.map(({ cert, key }) => ({
    parsed: new X509Certificate(cert),
    context: createSecureContext({ cert, key, minVersion }),
  }))
  return {
    default: pairs[0],
    minVersion,
    contextFor: (serverName: string): SecureContext | undefined =>
      certificates.find(({ parsed }) => parsed.checkHost(serverName) !== undefined)?.context,
  }
}

export function readServerCertificates(files: readonly CertificateFiles[], minVersion: SecureVersion) {
  const [first, ...others] = readKeyPairs(files, minVersion)
  if (first !== undefined) return serverCertificates([first, ...others], minVersion)
  throw new ProcessExit(EXIT.configuration, 'tls.certificates: a TLS listener needs a certificate')
}

export function readKeyPairs(files: readonly CertificateFiles[], minVersion: SecureVersion): KeyPair[] {
  return files.map(({ cert_file, key_file }) => {
    try {
      const pair = { cert: readRegularFile(cert_file), key: readRegularFile(key_file) }
      serverCertificates([pair], minVersion)
      return pair
    } catch (cause) {
      const message = `tls.certificates: ${cert_file} with ${key_file} cannot be used: ${errorText(cause)}`
      throw new ProcessExit(EXIT.configuration, message, { cause })
    }
  })
}
