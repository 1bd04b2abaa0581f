/**
 * Does each configured port answer with the right protocol, as this server, asked from another process (
 * health/README.md "Checks": listeners)? Who holds a port that does not is looked up with `ss`. Never throws.
 */
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { SECOND } from '../../base/clock.ts'
import { isOurs } from './check-inbound.ts'
import { checkOf } from './check.ts'
import type { HealthFinding } from './finding.ts'
import { greet, reasonOf } from './greet.ts'
import { ownDoors, type Door } from './own-doors.ts'
import { holderOf } from './own-doors.ts'
import type { CheckWorld } from './world.ts'

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
  const seen = holder === null ? problem : `${problem}; the port is held by ${holder}`
  const fix =
    holder === null
      ? 'systemctl restart sternpost.socket sternpost.service; if it does not help: sternpost check, journalctl -u sternpost'
      : `stop what holds it, or choose another port in ${setting} (and sternpost.socket); see: ss -ltnp sport = :${port}`
  return LISTENERS.fail(subject, seen, fix)
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
