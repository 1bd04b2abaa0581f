/**
 * Do our certificates hold: for the host name and for the names of tracked links, and for how long (health/README.md
 * "Checks": tls)? Asked with a handshake at the doors, so that it is what clients see. Never throws.
 */
import { X509Certificate } from 'node:crypto'
import { connect } from 'node:tls'
import { DAY, SECOND } from '../../base/clock.ts'
import { checkOf, type HealthFinding } from './check.ts'
import { partsOfProblem, type CertificateRecord } from '../../store/records/certificate-records.ts'
import { reasonOf } from './greet.ts'
import { ownDoors, type Door } from './own-doors.ts'
import type { CheckWorld } from './world.ts'

const TLS = checkOf('tls', 'Clients refuse a certificate that is expired or for another name; browsers warn on links.')
const WARN_DAYS = 14
const FAIL_DAYS = 3
const HANDSHAKE_MILLISECONDS = 5 * SECOND
const MOST_NAMES = 100

export const checkTls = TLS.anywhere(async (world) => {
  const { server } = world.configuration
  const doors = ownDoors(server)
  // All doors have the same certificates.
  const doorWith = (wanted: Door['protocol']): Door | undefined => doors.find(({ protocol }) => protocol === wanted)
  const door = doorWith('https') ?? doorWith('smtps')
  if (door === undefined) return [TLS.skip(null, 'no door begins with TLS: a proxy in front may')]
  const orders = (await world.server?.certificates()) ?? []
  const isTracking = server.listen.http.some(({ tls, serve }) => tls && serve.includes('tracking'))
  const linked = isTracking ? [server.tracking.host, ...(await trackingNames(world))] : []
  const ordered = orders.flatMap(({ names }) => names)
  const names = [...new Set([server.hostname, ...linked, ...ordered])].slice(0, MOST_NAMES)
  const orderOf = (name: string): CertificateRecord | undefined => orders.find((order) => order.names.includes(name))
  return Promise.all(names.map((name) => findingFor(name, { door, world, order: orderOf(name) })))
})

/** Of sending domains whose links lead to a name of their own. */
async function trackingNames({ server, domain }: CheckWorld): Promise<string[]> {
  const domains = (await server?.domains(domain)) ?? []
  return domains
    .filter(({ records }) => records.some(({ purpose, status }) => purpose === 'tracking' && status === 'verified'))
    .map(({ tracking }) => tracking.domain)
}

interface AskedName {
  door: Pick<Door, 'host' | 'port'>
  world: CheckWorld
  /** undefined: no authority is asked for it. */
  order: CertificateRecord | undefined
}

async function findingFor(name: string, { door, world, order }: AskedName): Promise<HealthFinding> {
  if (order !== undefined && order.problem !== null) {
    const { seen, fix } = partsOfProblem(order.problem)
    const next =
      `it is tried again at ${new Date(order.nextTryAt).toISOString()}, or, once mended, by: ` +
      `sternpost certificate renew ${order.name}`
    const isServer = name === world.configuration.server.hostname
    // Links lead to the host of the server until a name has its certificate; a renewal has a third of its life.
    const tell = order.issued === null && isServer ? TLS.fail : TLS.warn
    return tell(name, `no certificate: ${seen}`, fix === null ? next : `${fix}; ${next}`)
  }
  if (order?.issued === null) return TLS.warn(name, 'its certificate is ordered', 'wait a minute, then look again')
  const shown = await handshake(name, door)
  if (typeof shown === 'string') return TLS.skip(name, `no handshake at port ${door.port} (${shown}): see listeners`)
  const isHidden = order?.issued != null && !new X509Certificate(order.issued.chain).raw.equals(shown.leaf.raw)
  return judged(name, shown, { now: world.clock.now(), fix: isHidden ? HIDDEN : renewal(name) })
}

/** Files are chosen before what an authority issued (certificates/README.md). */
const HIDDEN = 'take its file out of tls.certificates, then sternpost reload: the one by tls.acme is shown then'

const ISSUER_IS_MISSING = 'it is shown without the certificate of its issuer: clients that do not know that one refuse'
const WHOLE_CHAIN =
  'name the file with the whole chain in cert_file (fullchain.pem, not cert.pem), then: sternpost reload'

function judged(name: string, { leaf, isAlone }: Shown, { now, fix }: { now: number; fix: string }): HealthFinding {
  const days = Math.floor((leaf.validToDate.getTime() - now) / DAY)
  const until = leaf.validToDate.toISOString().slice(0, 10)
  if (leaf.checkHost(name) === undefined) {
    return TLS.fail(name, `the certificate is for ${leaf.subjectAltName ?? leaf.subject}`, fix)
  }
  if (days < FAIL_DAYS) {
    return TLS.fail(name, days < 0 ? `it expired on ${until}` : `it ends on ${until}`, fix)
  }
  if (days < WARN_DAYS) return TLS.warn(name, `it ends on ${until}, in ${days} days`, fix)
  if (leaf.checkIssued(leaf)) {
    return TLS.warn(name, 'the certificate is self-signed: clients do not trust it', fix)
  }
  if (isAlone) return TLS.warn(name, ISSUER_IS_MISSING, WHOLE_CHAIN)
  return TLS.ok(name, `valid until ${until}`)
}

function renewal(name: string): string {
  const certbot = `certbot certonly --webroot -w <http.acme_webroot> -d ${name}`
  return `tls.acme in sternpost.yaml; or ${certbot}; copy it to the files of tls.certificates; sternpost reload`
}

interface Shown {
  leaf: X509Certificate
  /** Nothing came with it, and its issuer is not known here. */
  isAlone: boolean
}

/** What is shown for a name, or why there is nothing. */
function handshake(servername: string, { host, port }: AskedName['door']): Promise<Shown | string> {
  return new Promise((resolve) => {
    // Whether to trust it is judged here, not by the connection.
    const socket = connect({ host, port, servername, rejectUnauthorized: false })
    const end = (shown: Shown | string): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(shown)
    }
    const timer = setTimeout(() => end('timed out'), HANDSHAKE_MILLISECONDS)
    socket.on('secureConnect', () => {
      const leaf = socket.getPeerX509Certificate()
      // The types say that it is an Error; it is the code.
      const isAlone = String(socket.authorizationError) === 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'
      end(leaf === undefined ? 'no certificate' : { leaf, isAlone })
    })
    socket.on('error', (error) => end(reasonOf(error)))
    socket.on('close', () => end('the connection was closed'))
  })
}
