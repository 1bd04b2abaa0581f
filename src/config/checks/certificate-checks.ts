/** Certificates of our TLS doors: there is one, it fits its key, the key is secret, and it is not about to end. */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { statSync } from 'node:fs'
import { readRegularFile } from '../../base/regular-file.ts'
import { DAY } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { isLoopback } from '../../base/ip-address.ts'
import { errorAt, warningAt, type Finding } from '../source/finding.ts'
import { OTHERS_MASK } from '../settings/secrets.ts'
import type { ServerSettings } from '../settings/server-settings.ts'

/** health/README.md "Checks": tls. */
const WARN_BEFORE = 14 * DAY

export function certificateChecks({ listen, tls }: ServerSettings, now: number): Finding[] {
  const findings: Finding[] = []
  const need = (door: 'http' | 'submission', index: number): void => {
    const text = 'a TLS listener needs a certificate: name one in tls.certificates'
    if (tls.certificates.length === 0) findings.push(errorAt('sternpost', ['listen', door, index, 'tls'], text))
  }
  for (const [index, door] of listen.http.entries()) if (door.tls) need('http', index)
  for (const [index, door] of listen.submission.entries()) if (door.tls !== 'none') need('submission', index)
  const isOpen = listen.inbound.some(({ address }) => !isLoopback(address))
  if (tls.certificates.length === 0 && isOpen) {
    const text = 'bounces come in plain text: STARTTLS is not offered without tls.certificates'
    findings.push(warningAt('sternpost', ['listen', 'inbound'], text))
  }
  for (const [index, files] of tls.certificates.entries()) findings.push(...pairChecks(files, index, now))
  return findings
}

function pairChecks(files: { cert_file: string; key_file: string }, index: number, now: number): Finding[] {
  const at = (key: string): (string | number)[] => ['tls', 'certificates', index, key]
  const certificate = read(() => new X509Certificate(readRegularFile(files.cert_file)))
  const key = read(() => createPrivateKey(readRegularFile(files.key_file)))
  const findings: Finding[] = []
  if (!certificate.ok) findings.push(errorAt('sternpost', at('cert_file'), `not a certificate: ${certificate.problem}`))
  if (!key.ok) findings.push(errorAt('sternpost', at('key_file'), `not a private key: ${key.problem}`))
  else if ((statSync(files.key_file).mode & OTHERS_MASK) !== 0) {
    const fix = `chmod o= ${files.key_file}`
    findings.push(errorAt('sternpost', at('key_file'), `others can use ${files.key_file}; run ${fix}`, fix))
  }
  if (!certificate.ok) return findings
  if (key.ok && !certificate.value.checkPrivateKey(key.value)) {
    findings.push(errorAt('sternpost', at('key_file'), `this key does not belong to ${files.cert_file}`))
  }
  const left = certificate.value.validToDate.getTime() - now
  if (left <= 0) {
    findings.push(warningAt('sternpost', at('cert_file'), `the certificate expired on ${certificate.value.validTo}`))
  } else if (left < WARN_BEFORE) {
    const text = `the certificate ends on ${certificate.value.validTo}: renew it`
    findings.push(warningAt('sternpost', at('cert_file'), text))
  }
  if (certificate.value.checkIssued(certificate.value)) {
    findings.push(warningAt('sternpost', at('cert_file'), 'the certificate is self-signed: clients will not trust it'))
  }
  return findings
}

function read<Value>(open: () => Value): { ok: true; value: Value } | { ok: false; problem: string } {
  try {
    return { ok: true, value: open() }
  } catch (thrown) {
    // A missing file, a wrong format: the sentence of the system says which.
    return { ok: false, problem: errorText(thrown) }
  }
}
