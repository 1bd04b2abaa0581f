/**
 * `storage.url`: where PostgreSQL is, as a text without password, or where the whole URL is read from. Pure but for the
 * certificates that it names, which have to be there. What is wrong is said without the URL, which may hold a password.
 *
 * What `sslmode` asks for is what libpq does (PostgreSQL, "SSL Support"), and never less than TLS where none is given,
 * but to this machine. The driver has words of its own for some modes: it is told to take them as libpq does.
 *
 * | sslmode | TLS | certificate |
 * | --- | --- | --- |
 * | (none) | as `require`; to loopback or a Unix socket `disable` | |
 * | `disable` | no | |
 * | `require` | yes | not looked at; with `sslrootcert` as `verify-ca` |
 * | `verify-ca` | yes | of an authority in `sslrootcert` |
 * | `verify-full` | yes | the same, or of a known authority; for the name of the host |
 *
 * Several hosts stand in the URL as libpq takes them (`a:5432,b:5432`); of those the one that takes changes is used.
 */
import { isLoopback } from '../../base/ip-address.ts'
import { errorText } from '../../base/errors.ts'
import { readRegularFile } from '../../base/regular-file.ts'
import { INLINE_SECRET, readSecretReference, type SecretReference } from './network-field-types.ts'
import { accepted, field, refused, type Reading } from './reading.ts'

/** `variable`: of the environment, whose own secrets those are. */
export type DatabaseUrlReference = string | SecretReference | { variable: string }

const SSL_MODES = ['disable', 'require', 'verify-ca', 'verify-full']
const SSL_FILES = ['sslrootcert', 'sslcert', 'sslkey']
const PARAMETERS = ['host', 'port', 'target_session_attrs', 'sslmode', ...SSL_FILES]
const DEFAULT_PORT = '5432'
const EXAMPLE = 'postgres://sternpost@db.example.com/sternpost'
const PASSWORD_INLINE = `${INLINE_SECRET}; a URL that holds a password is one`

export const databaseUrl = field(
  (value): Reading<DatabaseUrlReference> => {
    if (typeof value === 'object' && value !== null && 'variable' in value && typeof value.variable === 'string') {
      return accepted({ variable: value.variable })
    }
    if (typeof value !== 'string') return readSecretReference(value)
    const url = parsed(value)
    const hasPassword =
      url === undefined ? value.includes('@') : url.password !== '' || url.searchParams.has('password')
    return hasPassword ? refused(PASSWORD_INLINE) : accepted(value)
  },
  { title: `URL without a password, such as ${EXAMPLE}, or a secret: { file: /path } or { credential: name }` },
)

/** As the driver takes it. */
export function readDatabaseUrl(text: string): Reading<string> {
  const url = parsed(text)
  if (url === undefined) return refused(`this is not the URL of a database; write for example ${EXAMPLE}`)
  if (hasRawMark(url)) return refused(RAW_MARK)
  if (url.pathname.length < 2) return refused(`the URL names no database; write for example ${EXAMPLE}`)
  const unknown = [...url.searchParams.keys()].find((name) => !PARAMETERS.includes(name))
  if (unknown !== undefined) return refused(`the URL has the parameter ${unknown}; known are ${PARAMETERS.join(', ')}`)
  const wanted = url.searchParams.get('target_session_attrs') ?? 'read-write'
  if (!['read-write', 'primary'].includes(wanted)) return refused('target_session_attrs must be read-write')
  url.searchParams.delete('target_session_attrs')
  const mode = url.searchParams.get('sslmode') ?? (isHere(url) ? 'disable' : 'require')
  if (!SSL_MODES.includes(mode)) return refused(`sslmode must be one of ${SSL_MODES.join(', ')}`)
  if (mode === 'verify-ca' && !url.searchParams.has('sslrootcert'))
    return refused('sslmode=verify-ca needs sslrootcert')
  for (const name of SSL_FILES) {
    const problem = fileProblem(url.searchParams.get(name))
    if (problem !== null) return refused(`${name}: ${problem}`)
  }
  url.searchParams.set('sslmode', mode)
  url.searchParams.set('uselibpqcompat', 'true')
  return accepted(url.href)
}

const RAW_MARK = 'the URL cannot be read: % / ? # @ : in a name or a password are written %25 %2F %3F %23 %40 %3A'
/** A slash or an at sign, as in `34@db.example.com/mail` of the password `12/34`. */
const NO_DATABASE = /[/@]/
/** A percent sign that begins no byte in two hexadecimal digits. */
const LONE_PERCENT = /%(?![\da-f]{2})/i

/** A sign of a name or the password ended it too soon: what follows would be taken for a host or a database. */
function hasRawMark({ username, password, pathname, hash }: URL): boolean {
  return hash !== '' || NO_DATABASE.test(pathname.slice(1)) || LONE_PERCENT.test(username + password)
}

/** Scheme and user; then hosts with a comma between them. */
const SEVERAL_HOSTS = /^(\w+:\/\/(?:[^/?#]*@)?)([^/?#@]+,[^/?#@]+)/
/** A host, in brackets where it has colons itself; then its port. */
const HOST_AND_PORT = /^(\[.*\]|[^:]*)(?::(\d+))?$/

/** A user without a host, and several hosts, as libpq takes them, are no URL by themselves. */
function parsed(text: string): URL | undefined {
  const [, , several = ''] = SEVERAL_HOSTS.exec(text) ?? []
  const whole = text.replace(SEVERAL_HOSTS, '$1localhost').replace('@/', '@localhost/')
  const url = URL.canParse(whole) ? new URL(whole) : undefined
  if (url === undefined || !['postgres:', 'postgresql:'].includes(url.protocol)) return undefined
  if (several === '') return url
  const hosts = several.split(',').map((each) => HOST_AND_PORT.exec(each))
  if (!hosts.every((each) => each !== null)) return undefined
  url.searchParams.set('host', hosts.map(([, host = '']) => host.replace(/^\[|\]$/g, '')).join(','))
  url.searchParams.set('port', hosts.map(([, , port = DEFAULT_PORT]) => port).join(','))
  return url
}

/** On this machine: Unix sockets or loopback. */
function isHere({ hostname, searchParams }: URL): boolean {
  const hosts = (searchParams.get('host') ?? decodeURIComponent(hostname).replace(/^\[(.*)\]$/, '$1')).split(',')
  return hosts.every((host) => host === '' || host.startsWith('/') || host === 'localhost' || isLoopback(host))
}

function fileProblem(file: string | null): string | null {
  try {
    if (file !== null) readRegularFile(file)
    return null
  } catch (thrown) {
    return errorText(thrown)
  }
}
