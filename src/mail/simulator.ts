/**
 * The simulated recipients (http/README.md "Simulated recipients"): addresses that work with every key and whose mail
 * never leaves the host. A `+label` is kept in the address and does not change what it stands for. Pure.
 */

export const SIMULATOR_DOMAIN = 'simulator.sternpost.test'

/** Where captured mail waits: no pool of pools.yaml can have this name. */
export const CAPTURE_POOL = '(capture)'

export function isSimulated(recipientDomain: string): boolean {
  return recipientDomain === SIMULATOR_DOMAIN
}

/** What `hard+signup@…` stands for: `hard`. Undefined for an address of another domain. */
export function simulatedName(address: string): string | undefined {
  const at = address.lastIndexOf('@')
  if (!isSimulated(address.slice(at + 1).toLowerCase())) return undefined
  return address.slice(0, at).toLowerCase().split('+')[0]
}
