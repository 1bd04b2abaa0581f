/**
 * Fields that name something on the network or on the disk. Values come out canonical: `2001:DB8::25` is
 * `2001:db8::25`, `MX.Example.NET.` is `mx.example.net`, an international name is in A-labels (RFC 5890 §2.3.2.1).
 * Nothing here asks the network or opens a file.
 */
import { isIP } from 'node:net'
import { domainToASCII } from 'node:url'
import { canonicalIp, isCidr } from '../../base/ip-address.ts'
import { accepted, field, refused, shown, written, type Reading } from './reading.ts'

export type SecretReference = { file: string } | { credential: string }

/** Printed without the value and without its line: the value may be the secret itself. */
export const INLINE_SECRET = 'a secret must be { file: … } or { credential: … }'

/** Read, write and execute for others; the group may read (config/README.md "Rules of the files"). */
export const OTHERS_MASK = 0o007
/** RFC 1035 §2.3.4. */
const LONGEST_HOST_NAME = 253
/** RFC 5321 §4.5.3.1.1. */
const LONGEST_LOCAL_PART = 64
const HIGHEST_PORT = 65_535

export const ipAddress = written('IP address', readIpAddress)

function readIpAddress(value: unknown): Reading<string> {
  const address = typeof value === 'string' ? canonicalIp(value) : undefined
  if (address !== undefined) return accepted(address)
  const problem = `${shown(value)} is not an IPv4 or IPv6 address`
  return typeof value === 'string' && isCidr(value)
    ? refused(`${problem}; write it without the mask`)
    : refused(problem)
}

/** An address to listen on; `*` is every address of both families. */
export const listenAddress = written('IP address, or * for all', (value) =>
  value === '*' ? accepted(value) : readIpAddress(value),
)

/** `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1` or `[2001:db8::1]:5353`, in the form node:dns takes. */
export const serverAddress = written('IP address, or IP address and port', (value) => {
  const whole = typeof value === 'string' ? value : ''
  const plain = canonicalIp(whole)
  if (plain !== undefined) return accepted(plain)
  // An IPv4 address or an IPv6 address in brackets, and a port.
  const match = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(whole)
  const address = canonicalIp(match?.[1] ?? match?.[2] ?? '')
  const number = match?.[3] === undefined ? null : Number(match[3])
  if (address === undefined || number === 0 || (number ?? 0) > HIGHEST_PORT) {
    return refused(`${shown(value)} is not an IP address or an IP address with a port`)
  }
  if (number === null) return accepted(address)
  return accepted(`${isIP(address) === 6 ? `[${address}]` : address}:${number}`)
})

export const network = written('network, such as 10.0.0.0/8', (value) =>
  typeof value === 'string' && isCidr(value)
    ? accepted(value)
    : refused(`${shown(value)} is not a network; write for example 10.0.0.0/8 or 2001:db8::/32`),
)

export const hostName = written('host name', readHostName)

export function readHostName(value: unknown): Reading<string> {
  const problem = refused(`${shown(value)} is not a host name`)
  if (typeof value !== 'string') return problem
  if (canonicalIp(value) !== undefined) return refused(`${shown(value)} is an IP address; a host name is needed here`)
  // Letters, digits, marks, hyphens and dots of any script: everything else would be decoded or mapped away.
  if (!/^[\p{L}\p{N}\p{M}.-]+$/u.test(value)) return problem
  // The dot of the root.
  const name = domainToASCII(value.replace(/\.$/, '')).toLowerCase()
  // Labels of letters, digits and inner hyphens, at most 63 long (RFC 1123 §2.1).
  const isHostName = /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/.test(name)
  return isHostName && name.length <= LONGEST_HOST_NAME && isIP(name) === 0 ? accepted(name) : problem
}

/** The end of a host name, with or without the dot in front: `.google.com` is `google.com`. */
export const hostNameSuffix = written('end of a host name', (value) =>
  readHostName(typeof value === 'string' && value.startsWith('.') ? value.slice(1) : value),
)

/** A plain address without display name. */
export const mailAddress = written('mail address', (value) => {
  const problem = refused(`${shown(value)} is not an email address`)
  if (typeof value !== 'string') return problem
  const at = value.lastIndexOf('@')
  const localPart = value.slice(0, Math.max(at, 0))
  const domain = readHostName(value.slice(at + 1))
  // Atoms and dots of RFC 5322 §3.2.3; quoted local parts serve no report address.
  const isLocalPart = /^[a-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*$/i.test(localPart)
  if (!domain.ok || !isLocalPart || localPart.length > LONGEST_LOCAL_PART) return problem
  return accepted(`${localPart}@${domain.value}`)
})

/** An http or https URL without a slash at the end, so that a path can be put behind it. */
export const baseUrl = written('URL', (value) => {
  const reading = readUrl(value)
  if (!reading.ok) return reading
  if (/[?#]/.test(reading.value)) return refused(`${shown(value)} must end before ? and #: paths are put behind it`)
  return accepted(reading.value.replace(/\/+$/, ''))
})

/** An http or https URL that is asked for as it is, but for a fragment, which no server is sent. */
export const webUrl = written('URL', (value) => {
  const reading = readUrl(value)
  if (!reading.ok) return reading
  const url = new URL(reading.value)
  url.hash = ''
  return accepted(url.href)
})

function readUrl(value: unknown): Reading<string> {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined
  if (url === undefined || !['http:', 'https:'].includes(url.protocol)) {
    return refused(`${shown(value)} is not a URL; write for example https://mail.example.com`)
  }
  if (url.username !== '' || url.password !== '') return refused('a URL must not hold a password')
  return accepted(url.href)
}

const ACME_DIRECTORIES: Readonly<Record<string, string>> = {
  letsencrypt: 'https://acme-v02.api.letsencrypt.org/directory',
  'letsencrypt-staging': 'https://acme-staging-v02.api.letsencrypt.org/directory',
}

/** A name we know, or the URL of the directory of a certificate authority (RFC 8555 §7.1.1). */
export const acmeDirectory = written('certificate authority', (value) => {
  const known = typeof value === 'string' ? ACME_DIRECTORIES[value] : undefined
  if (known !== undefined) return accepted(known)
  if (typeof value === 'string' && value.startsWith('https://') && URL.canParse(value)) return accepted(value)
  const names = Object.keys(ACME_DIRECTORIES).join(', ')
  return refused(
    `${shown(value)} is not a certificate authority; write one of ${names}, or the https URL of its directory`,
  )
})

export const absolutePath = written('absolute path', readAbsolutePath)

function readAbsolutePath(value: unknown): Reading<string> {
  if (typeof value !== 'string' || value.includes('\0')) return refused(`${shown(value)} is not a path`)
  if (!value.startsWith('/')) return refused(`${shown(value)} is not an absolute path; it must begin with /`)
  return accepted(value)
}

/** Linux keeps 108 bytes for it, and a NUL behind it (unix(7)). */
const MOST_SOCKET_PATH_BYTES = 107

export const socketPath = written('absolute path', (value) => {
  const reading = readAbsolutePath(value)
  if (!reading.ok || Buffer.byteLength(reading.value) <= MOST_SOCKET_PATH_BYTES) return reading
  return refused(`${shown(value)} is too long for a socket: at most ${MOST_SOCKET_PATH_BYTES} bytes`)
})

export const port = field(
  (value): Reading<number> => {
    const isPort = typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= HIGHEST_PORT
    return isPort ? accepted(value) : refused(`${shown(value)} is not a port; ports are 1 to ${HIGHEST_PORT}`)
  },
  { type: 'integer', minimum: 1, maximum: HIGHEST_PORT },
)

export const secret = field(readSecretReference, {
  title: 'secret: { file: /path } or { credential: name }',
  type: 'object',
})

export function readSecretReference(value: unknown): Reading<SecretReference> {
  if (typeof value === 'object' && value !== null && Object.keys(value).length === 1) {
    const { file, credential }: { file?: unknown; credential?: unknown } = value
    if (typeof file === 'string' && file.startsWith('/')) return accepted({ file })
    // A plain file name: the credential must not lead out of its folder.
    if (typeof credential === 'string' && /^[\w-][\w.-]*$/.test(credential)) return accepted({ credential })
  }
  if (typeof value === 'string') return refused(`${INLINE_SECRET}, not a string`)
  return refused(`${INLINE_SECRET}, with an absolute path or the name of a credential`)
}
