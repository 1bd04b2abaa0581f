/**
 * Does mail that comes back reach this server: the MX of the return path, and port 25 by its public address; and does
 * each configured port answer with the right protocol, as this server, asked from another process (health/README.md
 * "Checks": inbound, listeners)? Never throws for what the DNS or the network says. A machine reaches its own addresses
 * without leaving itself: a firewall in front of it is only seen from outside.
 */
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { SECOND } from '../../base/clock.ts'
import { recordsIn } from '../../senders/verification/finding.ts'
import { isOnInterface } from './check-ips.ts'
import { checkOf, type HealthFinding } from './check.ts'
import { greet, reasonOf } from './greet.ts'
import type { CheckWorld } from './world.ts'
import { ownDoors, type Door, holderOf } from './own-doors.ts'

const INBOUND = checkOf('inbound', 'Bounces and complaints come by mail; unseen, dead addresses are mailed again.')
const CONNECT_MILLISECONDS = 10 * SECOND
const SMTP_PORT = 25

export const checkInbound = INBOUND.anywhere(async (world) => {
  const { listen, domains, hostname } = world.configuration.server
  const name = domains.targets.return_path
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

const LISTENERS = checkOf(
  'listeners',
  'Nothing comes in by a port that does not answer, or that another program holds.',
)
const ANSWER_MILLISECONDS = 5 * SECOND

export const checkListeners = LISTENERS.outside((world) =>
  Promise.all(ownDoors(world.configuration.server).map((door) => answerOf(door, world))),
)

async function answerOf(door: Door, { configuration }: CheckWorld): Promise<HealthFinding> {
  const { host, port, protocol, setting } = door
  const subject = `${setting} ${host.includes(':') ? `[${host}]` : host}:${port}`
  const { hostname } = configuration.server
  const problem = protocol.startsWith('http') ? await webProblem(door) : await mailProblem(door, hostname)
  if (problem === null) return LISTENERS.ok(subject, `answers with ${protocol}`)
  const holder = await holderOf(port)
  const restart = 'systemctl restart sternpost.socket sternpost.service'
  if (holder === null) {
    const fix = `${restart}; if it does not help: sternpost check, journalctl -u sternpost`
    return LISTENERS.fail(subject, problem, fix)
  }
  const fix = `stop what holds it, or choose another port in ${setting} (and sternpost.socket)`
  return LISTENERS.fail(subject, `${problem}; the port is held by ${holder}`, `${fix}; see: ss -ltnp sport = :${port}`)
}

async function mailProblem({ host, port, protocol }: Door, hostname: string): Promise<string | null> {
  const isTls = protocol === 'smtps'
  const greeting = await greet({ address: host, port, isTls, timeoutMilliseconds: ANSWER_MILLISECONDS })
  if (greeting.kind === 'failed') return greeting.reason
  return isOurs(greeting.line, hostname) ? null : `another server answers: ${greeting.line}`
}

/** Any answer in HTTP will do: what a door serves is its own matter. */
function webProblem({ host, port, protocol }: Door): Promise<string | null> {
  return new Promise((resolve) => {
    const socket =
      protocol === 'https' ? connectTls({ host, port, rejectUnauthorized: false }) : connect({ host, port })
    let received = ''
    const end = (problem: string | null): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(problem)
    }
    const timer = setTimeout(() => end('no answer in time'), ANSWER_MILLISECONDS)
    socket.on(protocol === 'https' ? 'secureConnect' : 'connect', () =>
      socket.write('GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'),
    )
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString('latin1')
      if (received.length >= STATUS.length) end(received.startsWith(STATUS) ? null : 'it does not speak HTTP')
    })
    socket.on('error', (error) => end(reasonOf(error)))
    socket.on('close', () => end('the connection was closed without an answer'))
  })
}

const STATUS = 'HTTP/1.'
