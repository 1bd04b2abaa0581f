/**
 * What can be looked at before the DNS records exist: free ports, reverse names, outbound port 25. All are warnings.
 *
 * No record that is about to be created is asked for: resolvers would remember that it is not there.
 */
import { createServer } from 'node:net'
import { errorCode } from '../../base/errors.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import { checkIpPresent } from '../../health/checks/check-ips.ts'
import { checkPtr } from '../../health/checks/check-ip-names.ts'
import { checkPort25 } from '../../health/checks/check-port25.ts'
import { ownDoors } from '../../health/checks/own-doors.ts'
import type { Door } from '../../health/checks/own-doors.ts'
import { holderOf } from '../../health/checks/port-holder.ts'
import { runChecks } from '../../health/checks/run-checks.ts'
import { worldOf } from '../server/doctor-world.ts'

export async function firstChecks(folder: string, configuration: Configuration, isRunning: boolean): Promise<string[]> {
  const world = worldOf(folder, configuration, {})
  const [found, taken] = await Promise.all([
    runChecks([checkIpPresent, checkPtr, checkPort25], world),
    // The ports of a server that runs are its own.
    isRunning ? [] : takenPorts(ownDoors(configuration.server)),
  ])
  const troubled = found.filter(({ result }) => result === 'warn' || result === 'fail')
  return [
    ...taken,
    ...troubled.map(
      ({ check, subject, seen, fix }) => `${check}: ${subject ?? ''} ${seen}${fix === null ? '' : `. Fix: ${fix}`}`,
    ),
  ]
}

async function takenPorts(doors: readonly Door[]): Promise<string[]> {
  const found = await Promise.all(
    doors.map(async ({ port, address, setting }) => {
      if (!(await isTaken(port, address))) return []
      const holder = await holderOf(port)
      // A socket unit of ours, or somebody whom only root can see.
      if (holder === null) return []
      return [`${setting}: port ${port} is taken by ${holder}. Fix: stop what holds it, or choose another port`]
    }),
  )
  return found.flat()
}

/** By anybody whose address it shares. */
function isTaken(port: number, address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error) => resolve(errorCode(error) === 'EADDRINUSE'))
    const where = address === '*' ? { port } : { port, host: address }
    server.listen({ ...where, exclusive: true }, () => server.close(() => resolve(false)))
  })
}
