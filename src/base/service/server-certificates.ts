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

export type ServerCertificates = ReturnType<typeof readServerCertificates>

export function readServerCertificates(files: readonly CertificateFiles[], minVersion: SecureVersion) {
  const certificates = files.map((entry) => readCertificate(entry, minVersion))
  const [first] = certificates
  if (first === undefined) {
    throw new ProcessExit(EXIT.configuration, 'tls.certificates: a TLS listener needs a certificate')
  }
  return {
    default: { cert: first.cert, key: first.key },
    minVersion,
    contextFor: (serverName: string): SecureContext | undefined =>
      certificates.find(({ parsed }) => parsed.checkHost(serverName) !== undefined)?.context,
  }
}

function readCertificate({ cert_file, key_file }: CertificateFiles, minVersion: SecureVersion) {
  try {
    const cert = readRegularFile(cert_file)
    const key = readRegularFile(key_file)
    return { cert, key, parsed: new X509Certificate(cert), context: createSecureContext({ cert, key, minVersion }) }
  } catch (cause) {
    const message = `tls.certificates: ${cert_file} with ${key_file} cannot be used: ${errorText(cause)}`
    throw new ProcessExit(EXIT.configuration, message, { cause })
  }
}
