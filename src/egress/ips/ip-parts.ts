/** What those work with who choose an IP, show it or move it. */
import type { Allowance } from './allowance.ts'
import type { IpRegistry } from './ip-registry.ts'
import type { EgressOutside } from './outside.ts'

export interface IpParts extends EgressOutside {
  registry: IpRegistry
  allowance: Allowance
}
