/**
 * Whether a host name leads to this machine: an authority that asks there would find us. Asks the resolver of the
 * configuration for this one name alone, and never rejects: without an answer it does not lead here.
 */
import { networkInterfaces } from 'node:os'
import { ConfigurationError } from '../../base/errors.ts'
import { canonicalIp } from '../../base/ip-address.ts'
import { worldOf } from '../server/doctor-world.ts'
import type { SetupIp } from './answers.ts'
import { configurationAmong } from './files.ts'

export async function leadsHere(folder: string, hostname: string, ips: readonly SetupIp[]): Promise<boolean> {
  const found = await addressesOf(folder, hostname, ips)
  const interfaces = Object.values(networkInterfaces()).flatMap((each) => each ?? [])
  const ours = new Set([
    ...ips.map(({ address }) => address),
    ...interfaces.flatMap(({ address, internal }) => (internal ? [] : [canonicalIp(address) ?? ''])),
  ])
  return found.length > 0 && found.every((address) => ours.has(address))
}

async function addressesOf(folder: string, hostname: string, ips: readonly SetupIp[]): Promise<string[]> {
  try {
    const { resolver } = worldOf(folder, configurationAmong(folder, [...ips]), {})
    const answers = await Promise.all([resolver.addresses(hostname, 4), resolver.addresses(hostname, 6)])
    return answers.flatMap((answer) => (answer.kind === 'found' ? answer.records : []))
  } catch (thrown) {
    // What is wrong with the files is said when they are read whole.
    if (thrown instanceof ConfigurationError) return []
    throw thrown
  }
}
