/**
 * Checks within `sternpost.yaml` that span several keys: limits that must fit together, doors that would be open,
 * switches for tests that are on, and certificates.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { statSync } from 'node:fs'
import { createSecureContext } from 'node:tls'
import { DAY, MINUTE } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { isLoopback } from '../../base/ip-address.ts'
import { readRegularFile } from '../../base/regular-file.ts'
import { durationText } from '../settings/field-types.ts'
import { pathText } from '../source/at-path.ts'
import { errorAt, warningAt, type Finding } from '../source/finding.ts'
import type { SourcePath } from '../source/source-tree.ts'
import { OTHERS_MASK } from '../settings/network-field-types.ts'
import type { ServerSettings } from '../settings/server-settings.ts'

/** Time to write down an answer to the final dot that came at the last moment (store/README.md "Leases and claims"). */
const LEASE_RESERVE = 2 * MINUTE
/** Without a row the tables alone take a good part of less. */
const LEAST_BUDGET = 4 * 2 ** 20
const SMTP_PORT = 25

export function serverChecks(server: ServerSettings, now: number): Finding[] {
  const found = [...limitChecks(server), ...doorChecks(server), ...sharedPorts(server), ...testSwitches(server)]
  return [...found.filter((finding) => finding !== false), ...certificateChecks(server, now)]
}

type MaybeFinding = Finding | false

function limitChecks({ api, delivery, dns, retention, storage }: ServerSettings): MaybeFinding[] {
  const leastLease = delivery.timeouts.final_dot + LEASE_RESERVE
  const { recipients_burst: burst, batch_recipients: batch } = api
  const { min_ttl: minTtl, max_ttl: maxTtl } = dns.cache
  const tooShort = `${durationText(delivery.lease)} is too short; it must be above ${durationText(leastLease)}`
  return [
    delivery.lease <= leastLease && wrong(['delivery', 'lease'], `${tooShort} (timeouts.final_dot and 2m)`),
    burst < batch && wrong(['api', 'recipients_burst'], `${burst} is below batch_recipients (${batch})`, String(batch)),
    minTtl > maxTtl &&
      wrong(['dns', 'cache', 'min_ttl'], `${durationText(minTtl)} is above max_ttl (${durationText(maxTtl)})`),
    storage.engine === 'postgres' && storage.url === null && wrong(['storage', 'engine'], 'postgres needs storage.url'),
    storage.engine === 'sqlite' && storage.url !== null && noted(['storage', 'url'], 'not used: the engine is sqlite'),
    retention.budget !== null &&
      retention.budget < LEAST_BUDGET &&
      wrong(['retention', 'budget'], 'below 4MiB all that has ended would go at once; null is no budget', 'null'),
    storage.engine === 'postgres' &&
      retention.budget !== null &&
      wrong(['retention', 'budget'], 'what goes makes a PostgreSQL database no smaller: lower the times', 'null'),
  ]
}

/** What may be open to this machine, but not to the network. */
function doorChecks(server: ServerSettings): MaybeFinding[] {
  const { dns, listen, metrics } = server
  const plain = 'keys would cross the network in plain text: tls: none is for loopback addresses alone'
  const resolver = dns.validating_resolver
  const farResolver = `${resolver} is not loopback: the answer "validated" is worth nothing over a network`
  return [
    ...plainDoorChecks(server),
    ...listen.submission.map(
      ({ address, tls }, index) =>
        tls === 'none' && !isLoopback(address) && wrong(['listen', 'submission', index, 'tls'], plain, 'starttls'),
    ),
    listen.metrics !== null &&
      metrics.token === null &&
      !isLoopback(listen.metrics.address) &&
      wrong(['listen', 'metrics', 'address'], 'an address that is not loopback needs metrics.token'),
    resolver !== null &&
      !isLoopback(resolver) &&
      !isLoopback(withoutPort(resolver)) &&
      wrong(['dns', 'validating_resolver'], farResolver),
  ]
}

/** Doors of HTTP without TLS that others reach: with a proxy before them they are as they should be. */
function plainDoorChecks({ console: { enabled }, http, listen }: ServerSettings): MaybeFinding[] {
  const keys = 'API keys cross the network in plain text: tls: true, or a proxy, which http.trusted_proxies names'
  const noConsole = 'no console is served here: that needs TLS, or a loopback address with a proxy before it'
  return listen.http.flatMap(({ address, tls, serve }, index) => {
    const path = ['listen', 'http', index, 'serve']
    if (tls || isLoopback(address) || !serve.includes('api')) return []
    return [
      http.trusted_proxies.length === 0 && noted(path, keys),
      enabled && serve.includes('console') && noted(path, noConsole),
    ]
  })
}

/** Two doors at one address and port: the second one would not open, and the server not start. */
function sharedPorts({ listen }: ServerSettings): Finding[] {
  const { http, submission, inbound, metrics } = listen
  const lists = Object.entries({ http, submission, inbound }).flatMap(([name, doors]) =>
    doors.map(({ address, port }, index) => ({ path: ['listen', name, index, 'port'], address, port })),
  )
  const doors = metrics === null ? lists : [...lists, { path: ['listen', 'metrics', 'port'], ...metrics }]
  const first = new Map<string, string>()
  return doors.flatMap(({ path, address, port }) => {
    const place = `${address} port ${port}`
    const earlier = first.get(place)
    first.set(place, earlier ?? pathText(path.slice(0, -1)))
    // Port 0 is another one each time.
    return earlier === undefined || port === 0 ? [] : [wrong(path, `${place} is already that of ${earlier}`)]
  })
}

/** `127.0.0.1:53` or `[::1]:53`. */
function withoutPort(server: string): string {
  // A port at the end, and brackets around what is left.
  return server.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1')
}

function testSwitches({ delivery, webhooks }: ServerSettings): MaybeFinding[] {
  const otherPort = `mail goes to port ${delivery.port}, where no other server listens; this is for tests`
  const inwards = 'events may go to private addresses, which customers could use to reach inside'
  return [
    delivery.port !== SMTP_PORT && noted(['delivery', 'port'], otherPort),
    delivery.allow_private_addresses &&
      noted(['delivery', 'allow_private_addresses'], 'mail may go to private addresses; this is for tests'),
    webhooks.allow_http && noted(['webhooks', 'allow_http'], 'events may go over plain http; this is for tests'),
    webhooks.allow_private_addresses && noted(['webhooks', 'allow_private_addresses'], inwards),
  ]
}

function wrong(path: SourcePath, message: string, suggestion?: string): Finding {
  return errorAt('sternpost', path, message, suggestion)
}

function noted(path: SourcePath, message: string): Finding {
  return warningAt('sternpost', path, message)
}

/** health/README.md "Checks": tls. */
const WARN_BEFORE = 14 * DAY

/** Of our TLS doors: there is a certificate, it fits its key, the key is secret, and it is not about to end. */
function certificateChecks({ listen, tls }: ServerSettings, now: number): Finding[] {
  const needed = [
    ...listen.http.map((door, index) => door.tls && ['http', index]),
    ...listen.submission.map((door, index) => door.tls !== 'none' && ['submission', index]),
  ]
  const ofFiles = [
    ...tls.certificates.flatMap((files, index) => pairChecks(files, index, { now, hasAuthority: tls.acme !== null })),
    ...authorityChecks(['tls', 'ca_file'], tls.ca_file),
    ...authorityChecks(['tls', 'acme', 'ca_file'], tls.acme?.ca_file ?? null),
  ]
  if (tls.acme !== null) {
    const canProve = listen.http.some(({ tls: isTls, serve }) => isTls || serve.includes('acme'))
    const text = 'no door can prove a name: neither one without TLS that serves acme (port 80), nor one with TLS (443)'
    return canProve ? ofFiles : [...ofFiles, wrong(['tls', 'acme'], text)]
  }
  if (tls.certificates.length > 0) return ofFiles
  const text = 'a TLS listener needs a certificate: name one in tls.certificates, or set tls.acme'
  const isOpen = listen.inbound.some(({ address }) => !isLoopback(address))
  const plain = 'bounces come in plain text: STARTTLS is not offered without tls.certificates'
  return [
    ...ofFiles,
    ...needed.filter((door) => door !== false).map((door) => wrong(['listen', ...door, 'tls'], text)),
    ...(isOpen ? [noted(['listen', 'inbound'], plain)] : []),
  ]
}

/** Of authorities that are trusted beside those of the system. */
function authorityChecks(at: SourcePath, file: string | null): Finding[] {
  const found = file === null ? null : read(() => new X509Certificate(readRegularFile(file)))
  return typeof found === 'string' ? [wrong(at, `no certificate of an authority: ${found}`)] : []
}

interface CertificateWorld {
  now: number
  /** Some are ordered; files are chosen before them (certificates/README.md). */
  hasAuthority: boolean
}

function pairChecks(
  files: { cert_file: string; key_file: string },
  index: number,
  { now, hasAuthority }: CertificateWorld,
): Finding[] {
  const at = (key: string): SourcePath => ['tls', 'certificates', index, key]
  const certificate = read(() => new X509Certificate(readRegularFile(files.cert_file)))
  const key = read(() => createPrivateKey(readRegularFile(files.key_file)))
  const findings: Finding[] = []
  if (typeof certificate === 'string') findings.push(wrong(at('cert_file'), `not a certificate: ${certificate}`))
  if (typeof key === 'string') findings.push(wrong(at('key_file'), `not a private key: ${key}`))
  else if ((statSync(files.key_file).mode & OTHERS_MASK) !== 0) {
    const fix = `chmod o= ${files.key_file}`
    findings.push(wrong(at('key_file'), `others can use ${files.key_file}; run ${fix}`, fix))
  }
  if (typeof certificate === 'string') return findings
  if (typeof key !== 'string' && !certificate.checkPrivateKey(key)) {
    findings.push(wrong(at('key_file'), `this key does not belong to ${files.cert_file}`))
  } else if (typeof key !== 'string') {
    const usable = read(() =>
      createSecureContext({ cert: readRegularFile(files.cert_file), key: readRegularFile(files.key_file) }),
    )
    if (typeof usable === 'string') findings.push(wrong(at('cert_file'), `cannot be used: ${usable}`))
  }
  const left = certificate.validToDate.getTime() - now
  if (left <= 0) findings.push(noted(at('cert_file'), `the certificate expired on ${certificate.validTo}`))
  else if (left < WARN_BEFORE) {
    findings.push(noted(at('cert_file'), `the certificate ends on ${certificate.validTo}: renew it`))
  }
  if (certificate.checkIssued(certificate)) {
    const hides = 'it is shown in place of one by tls.acme for the same name; take it out of tls.certificates'
    const text = `the certificate is self-signed: ${hasAuthority ? hides : 'clients will not trust it'}`
    findings.push(noted(at('cert_file'), text))
  }
  return findings
}

/** A text: why it cannot be read, a missing file or a wrong format, in the sentence of the system. */
function read<Value>(open: () => Value): Value | string {
  try {
    return open()
  } catch (thrown) {
    return errorText(thrown)
  }
}
