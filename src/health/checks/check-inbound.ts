/**
 * Does mail that comes back reach this server: the MX of the return path, and port 25 by its public address
 * (health/README.md "Checks": inbound)? Never throws for what the DNS or the network says.
 *
 * A machine reaches its own addresses without leaving itself: a firewall in front of it is only seen from outside.
 */
import { SECOND } from '../../base/clock.ts'
import { recordsIn } from '../../senders/verification/finding.ts'
import { isOnInterface } from './check-ips.ts'
import { checkOf } from './check.ts'
import type { HealthFinding } from './finding.ts'
import { greet } from './greet.ts'
import type { CheckWorld } from './world.ts'

const INBOUND = checkOf('inbound', 'Bounces and complaints come by mail; unseen, dead addresses are mailed again.')
const CONNECT_MILLISECONDS = 10 * SECOND
const SMTP_PORT = 25

export const checkInbound = INBOUND.anywhere(async (world) => {
  const {
    listen,
    domains: {
      targets: { return_path: name },
    },
    hostname,
  } = world.configuration.server
  const answer = await world.resolver.mx(name)
  if (answer.kind === 'no-answer') return [INBOUND.silent(name, answer.reason)]
  const exchanges = recordsIn(answer).map(({ exchange }) => exchange)
  const setRecord = `set the record: ${name}. MX 10 ${hostname}.`
  if (exchanges.length === 0) return [INBOUND.fail(name, 'it has no MX record', setRecord)]
  const seen = `its mail goes to ${exchanges.join(', ')}`
  if (listen.inbound.length === 0) return [INBOUND.skip(name, `listen.inbound is empty, and ${seen}`)]
  return exchanges.includes(hostname) ? reach(hostname, world) : [INBOUND.fail(name, seen, setRecord)]
})

async function reach(hostname: string, { resolver, configuration, ips }: CheckWorld): Promise<HealthFinding[]> {
  const answers = await Promise.all([resolver.addresses(hostname, 4), resolver.addresses(hostname, 6)])
  const addresses = answers.flatMap(recordsIn)
  if (addresses.length === 0) {
    return [INBOUND.fail(hostname, 'the name has no address', `add an A record for ${hostname}`)]
  }
  const { inbound } = configuration.server.listen
  const port = inbound.find((door) => door.port === SMTP_PORT)?.port ?? inbound[0]?.port ?? SMTP_PORT
  return Promise.all(addresses.map((address) => doorAt(address, port, hostname, ips)))
}

async function doorAt(address: string, port: number, hostname: string, ips: CheckWorld['ips']): Promise<HealthFinding> {
  const greeting = await greet({ address, port, timeoutMilliseconds: CONNECT_MILLISECONDS })
  if (greeting.kind === 'failed' && isBehindRouter(address, ips)) {
    const seen = `a router has it, and leads no connection of ours back (${greeting.reason})`
    return INBOUND.skip(address, `${seen}: try it from outside: nc -vz ${hostname} ${port}`)
  }
  if (greeting.kind === 'failed') {
    const ufw = `ufw allow ${port}/tcp`
    const fix = `open it in the firewall: ${ufw}, or: nft add rule inet filter input tcp dport ${port} accept`
    return INBOUND.fail(address, `port ${port}: ${greeting.reason}`, fix)
  }
  if (isOurs(greeting.line, hostname)) return INBOUND.ok(address, `port ${port} answers: ${greeting.line}`)
  const fix = `point ${hostname} to this machine, or stop the other mail server`
  return INBOUND.fail(address, `port ${port} is answered by another server: ${greeting.line}`, fix)
}

/** Not of this machine, and packets of ours leave as it. */
function isBehindRouter(address: string, ips: CheckWorld['ips']): boolean {
  return !isOnInterface(address) && ips.some((ip) => ip.address === address && ip.source !== address)
}

/** As our doors greet, and nobody else: `220 mail.example.net ESMTP` without the name of a program behind it. */
export function isOurs(line: string, hostname: string): boolean {
  return line.toLowerCase() === `220 ${hostname} esmtp`
}
