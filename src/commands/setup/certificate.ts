/**
 * A self-signed certificate for the host name and that of tracked links, until a real one is there. By openssl, which
 * the package depends on; throws ProcessExit 1 with its words.
 */
import { execFileSync } from 'node:child_process'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'

const CERTIFICATE_DAYS = '365'

export interface CertificatePlaces {
  certificate: string
  key: string
}

export function makeCertificate(hostname: string, { certificate, key }: CertificatePlaces): void {
  const words = [
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-days',
    CERTIFICATE_DAYS,
    '-subj',
    '/O=Sternpost/CN=self-signed',
    '-addext',
    `subjectAltName=DNS:${hostname},DNS:track.${hostname}`,
    '-keyout',
    key,
    '-out',
    certificate,
  ]
  try {
    execFileSync('openssl', words, { stdio: ['ignore', 'ignore', 'pipe'] })
  } catch (cause) {
    const text = `sternpost: openssl made no certificate (${errorText(cause).trim()}). Fix: apt install openssl`
    throw new ProcessExit(EXIT.failed, text, { cause })
  }
}
